//! The steps of the check, from the first installation to the purge.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::machine::Machine;
use super::page;
use super::recordings::{MANIFEST, Recordings, VARIABLES};
use super::{Packages, done};
use crate::repository::VERSION;

/// A step, with a sentence that holds after it.
type Step = (&'static str, fn(&Machine, &Packages) -> Result<()>);

const STEPS: [Step; 11] = [
    ("the page's commands install the archive, verify it and remove it", page::archive),
    ("the page's commands install the package, verify it and remove it", page::debian),
    ("programs, texts, user and unit are installed, and no pool runs", is_installed),
    ("a pool started by hand settles, shows its state and stops", runs_by_hand),
    ("a service keeps files complete, also when its operator is killed", runs_as_a_service),
    ("an upgrade ends no job", upgrades),
    ("the other package `swarm` is refused", refuses_the_other),
    ("a removal ends the pools first, and keeps manifests and state", is_removed),
    ("an installation finds them again", is_installed_again),
    ("a purge keeps them, and disables the pools", is_purged),
    ("beside the other package `swarm` this one is refused", is_refused),
];

/// Takes all steps.
pub(super) fn all(machine: &Machine, packages: &Packages) -> Result<()> {
    for (sentence, step) in STEPS {
        let since = Instant::now();
        step(machine, packages).with_context(|| format!("does not hold: {sentence}"))?;
        done(sentence, since);
    }
    Ok(())
}

/// The state directory of the pool that runs as a service.
const STATE: &str = "/var/lib/swarm/cameras";
/// The link that starts this pool at boot.
const LINK: &str = "/etc/systemd/system/multi-user.target.wants/swarm@cameras.service";

fn is_installed(machine: &Machine, packages: &Packages) -> Result<()> {
    machine.run(&format!("dpkg --install {}", packages.current))?;
    for program in ["swarm", "kubectl-swarm"] {
        let version = machine.run(&format!("{program} --version"))?;
        ensure!(version.trim_end().ends_with(&format!(" {VERSION}")), "{program} says {version}");
    }
    let completed = machine.run("kubectl_complete-swarm pl")?;
    ensure!(completed.starts_with("plan\t"), "kubectl completes with {completed:?}");
    machine.run("bash -n /usr/share/bash-completion/completions/swarm")?;
    machine.run("bash -c '. /usr/share/bash-completion/completions/swarm; complete -p swarm'")?;
    for (file, text) in [
        ("/usr/share/zsh/vendor-completions/_swarm", "#compdef swarm"),
        ("/usr/share/fish/vendor_completions.d/swarm.fish", "complete -c swarm"),
        ("/usr/share/doc/jobswarm/copyright", "Apache-2.0"),
    ] {
        machine.run(&format!("grep --quiet '{text}' {file}"))?;
    }
    for page in ["swarm", "swarm-local", "kubectl-swarm-plan"] {
        machine
            .run(&format!("zcat /usr/share/man/man1/{page}.1.gz | grep --quiet '^.TH {page} 1'"))?;
    }
    let user = machine.run("getent passwd swarm")?;
    ensure!(user.ends_with(":/var/lib/swarm:/usr/sbin/nologin\n"), "the user is {user}");
    let complaints = machine.run("systemd-analyze verify swarm@cameras.service 2>&1")?;
    ensure!(complaints.is_empty(), "systemd-analyze says: {complaints}");
    let pools = machine.run("systemctl list-units --all --no-legend 'swarm@*'")?;
    ensure!(pools.is_empty(), "an installation starts pools: {pools}");
    Ok(())
}

fn runs_by_hand(machine: &Machine, _packages: &Packages) -> Result<()> {
    const SWARM: &str = "runuser --user swarm -- swarm";
    const DIR: &str = "--dir=/srv/by-hand";
    machine.run("install -d -o swarm -g swarm -m 700 /srv/by-hand")?;
    let sample = "/etc/swarm/example.yaml";
    machine.run(&format!("{SWARM} local --plain {DIR} {sample} --until-settled --timeout=1m"))?;
    machine.run(&format!(
        "systemd-run --quiet --unit=by-hand --uid=swarm swarm local --plain {DIR} {sample}"
    ))?;
    machine.until("the pool is settled", || {
        let status = machine.output(&format!("{SWARM} status {DIR}"))?;
        Ok(status.stdout.starts_with(b"example: Settled\n"))
    })?;
    machine.run(&format!("{SWARM} stop {DIR}"))?;
    machine.refused(&format!("{SWARM} status {DIR}"))?;
    machine.until("its service has ended", || {
        Ok(!machine.output("systemctl is-active by-hand")?.status.success())
    })
}

fn runs_as_a_service(machine: &Machine, _packages: &Packages) -> Result<()> {
    machine.run("systemctl start swarm@example && systemctl stop swarm@example")?;
    machine.run("install -d -o swarm -g swarm /srv/recordings")?;
    machine.run(&format!("cat >/etc/swarm/cameras.yaml <<'END'\n{MANIFEST}END"))?;
    machine.run(&format!("cat >/etc/swarm/cameras.env <<'END'\n{VARIABLES}END"))?;
    machine.run("chmod 600 /etc/swarm/cameras.env && systemctl enable --now swarm@cameras")?;
    Recordings::until_three_run(machine, 0)?;
    machine.until("systemd shows that the pool is settled", || {
        let status = machine.run("systemctl show --property=StatusText --value swarm@cameras")?;
        Ok(status == "Settled; 3 jobs on 2 workers\n")
    })?;
    machine.run("systemctl kill --kill-whom=main --signal=KILL swarm@cameras")?;
    Recordings::until_three_run(machine, 3)?;
    machine.run("systemctl restart swarm@cameras")?;
    Recordings::until_three_run(machine, 6).map(drop)
}

fn upgrades(machine: &Machine, packages: &Packages) -> Result<()> {
    let (operator, before) = (operator(machine)?, Recordings::read(machine)?);
    machine.run(&format!("dpkg --install {}", packages.next))?;
    let version = machine.run("dpkg-query --show --showformat='${Version}' jobswarm")?;
    ensure!(version == packages.next_version, "the version is {version}");
    let after = Recordings::read(machine)?;
    ensure!(before == after, "an upgrade ends jobs: {before:?}, then {after:?}");
    after.ensure_alive(machine)?;
    ensure!(operator == self::operator(machine)?, "an upgrade restarts the operator");
    let is_replaced = "test \"$(readlink /proc/";
    machine.run(&format!("{is_replaced}{operator}/exe)\" = '/usr/bin/swarm (deleted)'"))?;
    // The operator starts the new program for a worker that was killed.
    let worker = "grep -slz '^--name=cameras-0$' /proc/[0-9]*/cmdline | cut -d/ -f3";
    let killed = machine.run(worker)?;
    machine.run(&format!("kill -KILL {killed}"))?;
    machine.until("another worker has replaced the killed one", || {
        let process = machine.run(worker)?;
        let program = machine.output(&format!("readlink /proc/{}/exe", process.trim()))?;
        Ok(process != killed && program.stdout == b"/usr/bin/swarm\n")
    })?;
    machine.run("systemctl stop swarm@cameras && rm /srv/recordings/*")?;
    machine.run("systemctl start swarm@cameras")?;
    Recordings::until_three_run(machine, 0)?;
    let operator = self::operator(machine)?;
    machine.run(&format!("{is_replaced}{operator}/exe)\" = /usr/bin/swarm")).map(drop)
}

/// Returns the process of the operator.
fn operator(machine: &Machine) -> Result<String> {
    let process = machine.run("systemctl show --property=MainPID --value swarm@cameras")?;
    Ok(process.trim().to_owned())
}

fn refuses_the_other(machine: &Machine, packages: &Packages) -> Result<()> {
    let message = machine.refused(&format!("dpkg --install {}", packages.other))?;
    ensure!(message.contains("conflicting packages - not installing swarm"), "{message}");
    machine.run("dpkg --audit && systemctl is-active swarm@cameras").map(drop)
}

fn is_removed(machine: &Machine, _packages: &Packages) -> Result<()> {
    let files = "for file in $(dpkg --listfiles jobswarm); do test -d $file || echo $file; done";
    let files = machine.run(files)?;
    machine.run("dpkg --remove jobswarm")?;
    Recordings::ensure_complete(machine, 3)?;
    for file in files.lines() {
        let is_kept = file == "/etc/swarm/example.yaml";
        let left = machine.output(&format!("test -e {file}"))?.status.success();
        ensure!(left == is_kept, "{file}: after the removal, that it exists is {left}");
    }
    keeps_what_pools_need(machine)
}

/// Fails unless manifest, variables, state and user are there.
fn keeps_what_pools_need(machine: &Machine) -> Result<()> {
    let files = ["/etc/swarm/cameras.yaml", "/etc/swarm/cameras.env"];
    for file in files.into_iter().chain([&*format!("{STATE}/ledger.json")]) {
        machine.run(&format!("test -s {file}"))?;
    }
    machine.run("id swarm").map(drop)
}

fn is_installed_again(machine: &Machine, packages: &Packages) -> Result<()> {
    machine.run(&format!("test -L {LINK} && dpkg --install {}", packages.current))?;
    machine.run("systemctl start swarm@cameras")?;
    Recordings::until_three_run(machine, 3).map(drop)
}

fn is_purged(machine: &Machine, _packages: &Packages) -> Result<()> {
    let said = machine.run("dpkg --purge jobswarm")?;
    ensure!(said.contains("/etc/swarm is kept"), "dpkg says: {said}");
    Recordings::ensure_complete(machine, 6)?;
    machine.refused(&format!("test -L {LINK}"))?;
    machine.refused("test -e /etc/swarm/example.yaml")?;
    machine.refused("dpkg-query --show jobswarm")?;
    keeps_what_pools_need(machine)
}

fn is_refused(machine: &Machine, packages: &Packages) -> Result<()> {
    machine.run(&format!("dpkg --install {}", packages.other))?;
    let message = machine.refused(&format!("dpkg --install {}", packages.current))?;
    ensure!(message.contains("conflicting packages - not installing jobswarm"), "{message}");
    machine.refused("test -e /usr/bin/swarm").map(drop)
}
