//! Gives memory back to the system when it is no longer used.

/// From now on the memory of a freed buffer returns to the system at once. glibc keeps freed pieces
/// below a limit, which it raises with each larger piece up to 32 MiB. A server that once had many
/// clients kept a gigabyte of their buffers for ever.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe wrapper of mallopt(3)")]
pub(crate) fn give_back() {
    const LEAST_BYTES: libc::c_int = 256 << 10;
    // By default it reserves 64 MiB of addresses for every thread, up to eight for each processor.
    // Where addresses are limited (`ulimit -v`), a server with many threads runs out of them.
    const ARENAS: libc::c_int = 2;
    // SAFETY: they take two numbers, and are called before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LEAST_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Other allocators do so by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}
