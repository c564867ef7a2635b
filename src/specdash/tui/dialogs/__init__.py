"""Everything modal: confirmations, help, the last message, a note."""
