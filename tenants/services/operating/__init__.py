"""What operators do with the whole house: say something to its people, hold it still, take it down."""
