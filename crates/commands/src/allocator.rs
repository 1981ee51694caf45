//! Gives memory back to the system when it is no longer used.

/// From now on a buffer's memory is the system's again as soon as the buffer is gone. glibc keeps
/// what is freed below a limit that it raises, up to 32 MiB, with each larger piece that is freed:
/// so a server that once had many callers kept a gigabyte of their buffers for ever.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe wrapper of mallopt(3)")]
pub(crate) fn give_back() {
    const LEAST_BYTES: libc::c_int = 256 << 10;
    // Of its own accord it reserves 64 MiB of addresses for every thread, up to eight for each
    // processor, and where these are limited (`ulimit -v`) a server of many has none left.
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
