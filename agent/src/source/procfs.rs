//! What `/proc` and the cgroup file system say, on request.
