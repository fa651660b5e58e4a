"""What opens accounts: the steps of a sign-in, second factors, new passwords, sessions; and the page of a person."""
