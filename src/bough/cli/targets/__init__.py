"""What a command is about: which server or store (`locate`), which tasks (`selection`), their rows and their output."""
