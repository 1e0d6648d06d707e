"""What operators keep about an order beside its history: notes, and who looks after it."""
