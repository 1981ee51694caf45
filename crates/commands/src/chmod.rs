//! Changes to permissions, in the syntax of `chmod` and `rsync --chmod`.

/// Changes to permissions, as `chmod` and `rsync --chmod` have them: `D755,F644`, `u+w,go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chmod(Vec<Change>);

/// `mode & keep | set`, for those it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    directories: bool,
    files: bool,
    keep: u32,
    set: u32,
    /// `X`: execution only where some class may execute already, and for directories.
    careful: bool,
}

/// The permissions that are transferred.
const ALL: u32 = 0o777;
const EXECUTE: u32 = 0o111;

impl Chmod {
    /// Changes, separated by commas, each perhaps after `D` (directories only) or `F` (files only):
    /// an octal number to 777, or classes (`ugoa`), `+`, `-` or `=`, and permissions (`rwxX`).
    /// Without classes it means all of them, less the bits of `umask`.
    pub(crate) fn parse(text: &str, umask: u32) -> Result<Self, String> {
        text.split(',').map(|one| change(one, umask)).collect::<Result<_, _>>().map(Self)
    }

    /// Permission bits after the changes.
    pub(crate) fn apply(&self, mode: u32, directory: bool) -> u32 {
        let careful = !directory && mode & EXECUTE == 0;
        let of = |change: &&Change| if directory { change.directories } else { change.files };
        self.0.iter().filter(of).fold(mode, |mode, change| {
            let set = if change.careful && careful { change.set & !EXECUTE } else { change.set };
            mode & (change.keep | !ALL) | set
        })
    }
}

fn change(text: &str, umask: u32) -> Result<Change, String> {
    let wrong = |why: &str| format!("\"{text}\" is no change of permissions: {why}");
    let (directories, files, rest) = match text.as_bytes().first() {
        Some(b'D') => (true, false, &text[1..]),
        Some(b'F') => (false, true, &text[1..]),
        _ => (true, true, text),
    };
    let careful = rest.contains('X');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u32::from_str_radix(rest, 8).ok().filter(|mode| *mode <= ALL);
        let set = mode.ok_or_else(|| wrong("a number is octal, and at most 777"))?;
        return Ok(Change { directories, files, keep: 0, set, careful: false });
    }
    let at = rest.find(['+', '-', '=']).ok_or_else(|| wrong("it has none of + - ="))?;
    let (classes, what) = rest.split_at(at);
    let mut places = 0;
    for class in classes.chars() {
        places |= match class {
            'u' => 0o100,
            'g' => 0o010,
            'o' => 0o001,
            'a' => 0o111,
            _ => return Err(wrong("the classes are u g o a")),
        };
    }
    let mut kinds = 0;
    for what in what.chars().skip(1) {
        kinds |= match what {
            'r' => 4,
            'w' => 2,
            'x' | 'X' => 1,
            's' | 't' => return Err(wrong("set-id and sticky bits are never transferred")),
            _ => return Err(wrong("what is one of r w x X")),
        };
    }
    let everybody = places == 0;
    let places = if everybody { EXECUTE } else { places };
    let most = if everybody { ALL & !umask } else { ALL };
    let bits = (places * kinds) & most;
    let (keep, set) = match what.as_bytes().first() {
        Some(b'+') => (ALL, bits),
        Some(b'-') => (ALL & !bits, 0),
        _ => (ALL & !(places * 7), bits),
    };
    Ok(Change { directories, files, keep, set, careful })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_change_as_chmod_would_change_them() {
        for (text, file, directory) in [
            ("D755,F644", 0o644, 0o755),
            ("u+w,go-w", 0o640, 0o750),
            ("a+X", 0o640, 0o751),
            ("Fa+x", 0o751, 0o750),
            ("Du=rx", 0o640, 0o550),
            ("go=", 0o600, 0o700),
            ("o=r", 0o644, 0o754),
            ("+w", 0o640, 0o750),
            ("=r", 0o440, 0o440),
            ("600", 0o600, 0o600),
            ("F600,u+x", 0o700, 0o750),
        ] {
            let chmod = Chmod::parse(text, 0o027).expect(text);
            let both = (chmod.apply(0o640, false), chmod.apply(0o750, true));
            assert_eq!(both, (file, directory), "{text}: {:o} {:o}", both.0, both.1);
        }
        // Execution is checked before the first change.
        let chmod = Chmod::parse("u+x,go+X", 0).expect("changes");
        assert_eq!(chmod.apply(0o600, false), 0o700);
        assert_eq!(chmod.apply(0o4711, false) & !ALL, 0o4000, "other bits stay");
    }

    #[test]
    fn an_invalid_change_is_named() {
        for (text, says) in [
            ("", "none of"),
            ("u+w,", "none of"),
            ("D", "none of"),
            ("888", "octal"),
            ("1777", "777"),
            ("z+w", "u g o a"),
            ("u+q", "r w x X"),
            ("u+s", "never transferred"),
            ("755x", "octal"),
        ] {
            let error = Chmod::parse(text, 0).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
