"""What things are: frozen values without behaviour beyond reading them."""
