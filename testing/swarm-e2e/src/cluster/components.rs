//! The cluster's own processes: each has a log file, and can be broken by its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The processes of a cluster by name: `etcd`, `apiserver`, `controller-manager`, `scheduler`,
/// `kube-proxy`, `dns`, and per node `containerd-1`, `kubelet-1`.
#[derive(Debug)]
pub struct Components {
    logs: PathBuf,
    all: Mutex<BTreeMap<String, Component>>,
}

#[derive(Debug)]
struct Component {
    program: PathBuf,
    args: Vec<String>,
    process: Child,
    started: Instant,
}

impl Components {
    /// Begins without a process. Logs go to the folder `logs`.
    pub(super) fn new(logs: &Path) -> Result<Self> {
        fs::create_dir_all(logs)?;
        Ok(Self { logs: logs.to_owned(), all: Mutex::default() })
    }

    /// The folder with one `NAME.log` per process.
    #[must_use]
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Starts a process for the first time.
    pub(super) fn start(&self, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
        let process = self.spawn(name, program, &args)?;
        let started = Instant::now();
        let component = Component { program: program.to_owned(), args, process, started };
        self.lock().insert(name.to_owned(), component);
        Ok(())
    }

    /// The process id of a component, as seen from the namespaces of this process.
    ///
    /// # Errors
    ///
    /// When no component has that name.
    pub fn pid(&self, name: &str) -> Result<u32> {
        self.with(name, |component| Ok(component.process.id()))
    }

    /// Kills a component at once, as a power cut would, and waits until it has ended.
    ///
    /// # Errors
    ///
    /// When no component has that name.
    pub fn kill(&self, name: &str) -> Result<()> {
        self.with(name, |component| {
            component.process.kill()?;
            component.process.wait()?;
            Ok(())
        })
    }

    /// Stops a component without ending it. It is silent, and its connections stay open.
    ///
    /// # Errors
    ///
    /// When no component has that name, or the component has ended.
    pub fn freeze(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::STOP)
    }

    /// Lets a frozen component continue.
    ///
    /// # Errors
    ///
    /// When no component has that name, or the component has ended.
    pub fn thaw(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::CONT)
    }

    /// Starts a killed component again with the same arguments.
    ///
    /// # Errors
    ///
    /// When no component has that name, or the component still runs.
    pub fn restart(&self, name: &str) -> Result<()> {
        self.restart_with(name, |_| ())
    }

    /// Starts a killed component again, with other arguments from now on.
    ///
    /// # Errors
    ///
    /// When no component has that name, or the component still runs.
    pub fn restart_with(&self, name: &str, edit: impl FnOnce(&mut Vec<String>)) -> Result<()> {
        self.with(name, |component| {
            if component.process.try_wait()?.is_none() {
                bail!("{name} is still running");
            }
            edit(&mut component.args);
            self.start_again(name, component)
        })
    }

    /// Restarts the `followers` that have run for longer than `of`, which was thus restarted.
    /// Kubernetes' own controllers retry their watches only after up to a minute when the API
    /// server was unavailable twice. Until then they miss all changes.
    ///
    /// # Errors
    ///
    /// When no component has one of these names, or one cannot be started.
    pub(super) fn refresh(&self, followers: &[&str], of: &str) -> Result<()> {
        let since = self.with(of, |component| Ok(component.started))?;
        for name in followers {
            self.with(name, |component| {
                if component.started < since {
                    component.process.kill()?;
                    component.process.wait()?;
                    self.start_again(name, component)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Lets frozen components continue, and restarts ended ones, if `are_meant` accepts their
    /// names. Returns the names of the restarted components.
    ///
    /// # Errors
    ///
    /// When one cannot be started.
    pub(super) fn mend(&self, are_meant: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for (name, component) in self.lock().iter_mut().filter(|(name, _)| are_meant(name)) {
            if component.process.try_wait()?.is_some() {
                self.start_again(name, component)?;
                ended.push(name.clone());
            } else {
                kill_process(Pid::from_child(&component.process), Signal::CONT)?;
            }
        }
        Ok(ended)
    }

    /// Checks that no component has ended by itself. The error has the end of its log.
    ///
    /// # Errors
    ///
    /// When a component has ended.
    pub fn all_running(&self) -> Result<()> {
        for (name, component) in self.lock().iter_mut() {
            if let Some(status) = component.process.try_wait()? {
                let log = fs::read_to_string(self.log(name)).unwrap_or_default();
                bail!("{name} ended with {status}: {}", log.lines().last().unwrap_or_default());
            }
        }
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn start_again(&self, name: &str, component: &mut Component) -> Result<()> {
        component.process = self.spawn(name, &component.program, &component.args)?;
        component.started = Instant::now();
        Ok(())
    }

    fn spawn(&self, name: &str, program: &Path, args: &[String]) -> Result<Child> {
        let log = File::options().create(true).append(true).open(self.log(name))?;
        // A program prefers programs in its own folder.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = program.parent().filter(|it| it.is_absolute()).map(Path::to_owned);
        let folders = folders.into_iter().chain(std::env::split_paths(&path));
        Command::new(program)
            .args(args)
            .env("PATH", std::env::join_paths(folders)?)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        self.with(name, |component| {
            if let Some(status) = component.process.try_wait()? {
                bail!("{name} has ended with {status}");
            }
            Ok(kill_process(Pid::from_child(&component.process), signal)?)
        })
    }

    fn with<T>(&self, name: &str, f: impl FnOnce(&mut Component) -> Result<T>) -> Result<T> {
        let mut all = self.lock();
        let component = all.get_mut(name).with_context(|| format!("no component {name}"))?;
        f(component)
    }

    /// Locks the map, also after a scenario panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Component>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::until::until_blocking;

    #[test]
    fn a_component_can_be_killed_and_started_again_but_never_twice_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let components = Components::new(folder.path()).unwrap();
        components.start("idle", Path::new("sleep"), vec!["60".into()]).unwrap();
        components.all_running().unwrap();
        let first = components.pid("idle").unwrap();
        assert!(components.restart("idle").is_err());
        components.freeze("idle").unwrap();
        components.kill("idle").unwrap();
        assert!(components.thaw("idle").is_err());
        assert!(components.all_running().unwrap_err().to_string().starts_with("idle ended"));
        assert_eq!(components.mend(|_| true).unwrap(), ["idle"]);
        assert_eq!(components.mend(|_| true).unwrap(), Vec::<String>::new());
        assert_ne!(components.pid("idle").unwrap(), first);
        assert_eq!(components.mend(|name| name != "idle").unwrap(), Vec::<String>::new());
        components.start("later", Path::new("sleep"), vec!["60".into()]).unwrap();
        let second = components.pid("idle").unwrap();
        components.refresh(&["later"], "idle").unwrap();
        components.refresh(&["idle"], "later").unwrap();
        assert_ne!(components.pid("idle").unwrap(), second);
        components.kill("later").unwrap();
        assert_eq!(components.mend(|name| name != "later").unwrap(), Vec::<String>::new());
        components.restart("later").unwrap();
        let third = components.pid("later").unwrap();
        components.refresh(&["later"], "idle").unwrap();
        assert_eq!(components.pid("later").unwrap(), third);
        components.kill("idle").unwrap();
        components.restart_with("idle", |args| args[0] = "0".into()).unwrap();
        until_blocking("the shorter sleep to end", Duration::from_secs(5), || {
            Ok(components.all_running().is_err().then_some(()))
        })
        .unwrap();
        components.kill("later").unwrap();
    }
}
