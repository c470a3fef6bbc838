"""What happens, as values: `facts` (decided and journalled) and `orders` (what the shell must do)."""
