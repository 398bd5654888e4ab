"""What starts, prepares and ends the cloud. Standard library only: it runs before anything is installed."""
