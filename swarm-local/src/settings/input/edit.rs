//! The effects of an edit on the manifest in force.

use swarm_core::{Job, JobName};

use super::Wanted;

/// Whether `edited` lacks a job, field or param of `current`. A partially written file lacks its end.
pub(super) fn takes_away(current: &Wanted, edited: &Wanted) -> bool {
    let lacks = |(name, before): (&JobName, &Job)| {
        edited.desired.jobs.get(name).is_none_or(|after| is_less(before, after))
    };
    !edited.fields.has_all(&current.fields) || current.desired.jobs.iter().any(lacks)
}

/// Whether `after` lacks a field or a param that `before` has.
fn is_less(before: &Job, after: &Job) -> bool {
    let Job { pin, priority, share, run_once, suspend, title, runner, params } = before;
    before != after
        && ((pin.is_some() && after.pin.is_none())
            || (*priority != 0 && after.priority == 0)
            || (share.is_some() && after.share.is_none())
            || (*run_once && !after.run_once)
            || (*suspend && !after.suspend)
            || (title.is_some() && after.title.is_none())
            || (runner.is_some() && after.runner.is_none())
            || params.keys().any(|name| !after.params.contains_key(name)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::wanted;
    use super::*;

    const WHOLE: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: s}
spec:
  replicas: 2
  pool: {statefulSet: {name: w}}
  jobs:
    - {name: a}
    - name: b
      params:
        url: rtsp://b
        user: me
  worker:
    protocol: Session
    runner:
      command:
        - ffmpeg
        - -i
        - \"{job}\"
      env:
        A: one
";

    #[test]
    fn every_beginning_of_a_file_takes_something_away_or_is_refused() {
        let whole = wanted(WHOLE).unwrap();
        assert!(!takes_away(&whole, &whole));
        let mut valid = 0;
        for lines in 1..WHOLE.trim_end().lines().count() {
            let text: Vec<_> = WHOLE.lines().take(lines).collect();
            if let Ok(part) = wanted(&text.join("\n")) {
                valid += 1;
                assert!(takes_away(&whole, &part), "{lines} lines");
            }
        }
        assert!(3 < valid, "{valid}");
    }

    #[test]
    fn an_edit_that_adds_or_changes_takes_nothing_away() {
        let whole = wanted(WHOLE).unwrap();
        for (from, to) in [
            ("{name: a}", "{name: a, share: 50}\n    - {name: c}"),
            ("replicas: 2", "replicas: 1"),
            ("rtsp://b", "rtsp://c"),
            ("        - -i\n", "        - -i\n        - -n\n"),
            ("  worker:", "  rebalance: {paused: true}\n  worker:"),
        ] {
            let edited = WHOLE.replacen(from, to, 1);
            assert_ne!(edited, WHOLE);
            assert!(!takes_away(&whole, &wanted(&edited).unwrap()), "{to}");
        }
    }
}
