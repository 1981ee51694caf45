//! An sshd of a test's own, and `netblt cp` over it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Env, Finished, Running, installed, skip, wait_until};

/// An sshd of our own on loopback, for this user alone.
pub(crate) struct Sshd {
    child: Child,
    /// For ssh: the host is called `there`.
    pub(crate) config: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// None, with a counted message, where there is no sshd or it cannot run. `login` stands
    /// before the key in its list of keys, such as `command="..."`.
    pub(crate) fn start(env: &Env, login: &str) -> Option<Self> {
        if !["sshd", "ssh", "ssh-keygen"].iter().all(|program| installed(program)) {
            skip("needs sshd and ssh");
            return None;
        }
        if rustix::process::geteuid().is_root() && !Path::new("/run/sshd").exists() {
            skip("no /run/sshd");
            return None;
        }
        for name in ["host_key", "key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(env.path(name))
                .status();
            assert!(made.expect("it runs").success());
        }
        let key = fs::read_to_string(env.path("key.pub")).expect("read");
        fs::write(env.path("authorized"), format!("{login} {key}")).expect("written");
        let port = free_port();
        let at = |name: &str| env.path(name).display().to_string();
        fs::write(
            env.path("sshd_config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n\
                 Subsystem sftp internal-sftp\n{}",
                at("host_key"),
                at("authorized"),
                own_home(env)
            ),
        )
        .expect("written");
        fs::write(
            env.path("ssh_config"),
            format!(
                "Host there\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\n\
                 IdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile {}\n\
                 LogLevel ERROR\nBatchMode yes\n",
                at("key"),
                at("known")
            ),
        )
        .expect("written");
        env.make_directory("near");
        let child = Command::new("/usr/sbin/sshd")
            .arg("-D")
            .arg("-f")
            .arg(env.path("sshd_config"))
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let sshd = Self { child, config: env.path("ssh_config") };
        wait_until("sshd answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(sshd)
    }

    /// `netblt cp` in `near`, with this sshd's host as `there`.
    pub(crate) fn cp(&self, env: &Env, args: &[&str]) -> Finished {
        self.start_cp(env, args).finish()
    }

    pub(crate) fn start_cp(&self, env: &Env, args: &[&str]) -> Running {
        let mut command = env.command(&self.words(args));
        command.current_dir(env.path("near"));
        Running::new(command)
    }

    /// The words of that command behind the program's name.
    pub(crate) fn words(&self, args: &[&str]) -> Vec<String> {
        let config = self.config.to_str().expect("text");
        let own = ["cp", "-F", config, "--remote-netblt", super::programs::netblt()];
        own.iter().chain(args).map(|word| (*word).to_owned()).collect()
    }

    /// Adds a line to the client's configuration.
    pub(crate) fn configure(&self, line: &str) {
        let mut text = fs::read_to_string(&self.config).expect("read");
        text.push_str(line);
        text.push('\n');
        fs::write(&self.config, text).expect("written");
    }
}

/// A line of sshd_config: what a program keeps for its user goes to a directory of the test's, and
/// not to the home of the user that logs in.
pub(crate) fn own_home(env: &Env) -> String {
    format!("SetEnv HOME={}\n", env.make_directory("far-home").display())
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    listener.local_addr().expect("known").port()
}
