"""Where stored runs come from. Each source hands its tables to a session and knows nothing of scores."""
