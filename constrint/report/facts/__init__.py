"""What a report says, as typed records without any drawing: `records` are the types, `gather` fills them."""
