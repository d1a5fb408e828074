"""Code that several commands share: options, completion, and the follower on the terminal."""
