"""What happens, as values: `news` (it arrives), `facts` (decided and journalled), `orders` (the shell must do it)."""
