"""Language models as proposers: what they are asked, what a call may cost, and the transcript of what they said."""
