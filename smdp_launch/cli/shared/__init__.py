"""What several commands share: options, completion, and a job followed on the terminal."""
