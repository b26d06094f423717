//! The places.

use super::Access::{Port, Resource};
use super::{Place, READS, Readers, Shown, Verbs};

const NONE: Verbs = &[];
const SWARM: &str = "swarm.k8slab.info";

const NUMBERS: &str = "counters, and numbers of jobs and workers";
const TIMES: &str = "times, and words of fixed lists";
const HOLDERS: &str = "names of jobs, workers and sessions, with tokens and numbers";
const JOBS: &str = "names of jobs";
const LIVES: &str =
    "names of jobs and workers, numbers and times, and how runs of a job ended, as in `lastExit`";
const WHO: &str = "names of jobs and workers";
const OBJECTS: &str = "names and UIDs of objects";
const CONDITION: &str = "the message of that condition, see the Swarm";

/// The readers of a place that tenants do not read.
const fn untenanted(worker: Verbs, operator: Verbs) -> Readers {
    Readers { people: &READS, tenant: NONE, worker, operator }
}

/// The table: each place, with a line for each of its fields.
pub const PLACES: &[Place] = &[
    Place {
        name: "The Swarm",
        access: Resource(
            SWARM,
            "swarms",
            Readers { people: &READS, tenant: &READS, worker: NONE, operator: &READS },
        ),
        lines: &[
            Shown::new(
                &["spec.*"],
                "all that its users wrote: `params` of jobs, commands, `env` and templates of `files` of \
                 runners, the pod template of a managed pool; of Secrets the names and keys",
            ),
            Shown::new(
                &["status.observedGeneration", "status.revision", "status.version"],
                "counters",
            ),
            Shown::new(&["status.asOf"], "the time of the last write"),
            Shown::new(
                &["status.sourceDigest"],
                "a digest of the jobs, which says whether they changed",
            ),
            Shown::new(
                &[
                    "status.jobs",
                    "status.assigned",
                    "status.unassigned",
                    "status.ready",
                    "status.workersReady",
                    "status.workersDesired",
                    "status.workersStale",
                    "status.shares.*",
                    "status.progress",
                    "status.suspended",
                    "status.running",
                    "status.published",
                    "status.moving",
                    "status.done",
                    "status.quarantined",
                    "status.failing",
                    "status.desiredWorkers",
                    "status.replicas",
                ],
                "numbers of jobs and workers",
            ),
            Shown::new(
                &[
                    "status.unassignedJobs",
                    "status.unassignedJobs[].job",
                    "status.unassignedJobs[].reason",
                ],
                "names of at most a hundred jobs without a worker, with a word of a fixed list",
            ),
            Shown::new(
                &[
                    "status.missingWorkers",
                    "status.missingWorkers[].worker",
                    "status.missingWorkers[].slot",
                    "status.missingWorkers[].since",
                ],
                "names of at most a hundred workers that are not ready, and times",
            ),
            Shown::new(&["status.selector"], "the labels that select the pods"),
            Shown::new(&["status.conditions"], "the conditions below"),
            Shown::new(
                &[
                    "status.conditions[].type",
                    "status.conditions[].status",
                    "status.conditions[].reason",
                    "status.conditions[].observedGeneration",
                    "status.conditions[].lastTransitionTime",
                ],
                TIMES,
            ),
            Shown::new(
                &["status.conditions[].message"],
                "names of jobs, workers, ConfigMaps, images and pull secrets. How jobs that fail end: the \
                 program or the check, with params; unless `showOutput` is false the last line of \
                 output. A wrong line of a list of jobs. Texts of the scheduler, the kubelet and the API \
                 server about pods and objects of the pool, but no log of a container",
            ),
        ],
    },
    Place {
        name: "Events about a Swarm",
        access: Resource(
            "",
            "events",
            Readers { people: &READS, tenant: NONE, worker: NONE, operator: &["list"] },
        ),
        lines: &[
            Shown::new(&["all reasons of the condition `Ready`"], CONDITION),
            Shown::new(
                &[
                    "AutoscaleLimited",
                    "JobsFailing",
                    "NotReadyTooLong",
                    "PoolMisconfigured",
                    "SessionsUnprotected",
                    "WriteRefused",
                ],
                "the message of that condition. An Event stays for an hour, also where `showOutput` \
                 becomes false meanwhile",
            ),
            Shown::new(
                &["JobsDisplaced", "JobsFailedOver", "JobsQuarantined", "WorkerFenced"],
                WHO,
            ),
            Shown::new(
                &["JobsMoved"],
                "an episode of the history: names of jobs, workers and edited fields",
            ),
            Shown::new(&["Adopted"], "numbers of jobs and workers"),
            Shown::new(&["JobsRemoved"], "numbers of jobs, and the name of the Swarm"),
            Shown::new(&["Outage"], "a cause, a time, and a number of jobs"),
            Shown::new(&["ScaleTakenOver"], "the name of the workload, and numbers of workers"),
            Shown::new(
                &["ControllerNotHosted"],
                "names of a controller and of the operator's ConfigMap",
            ),
            Shown::new(&["PoolLeft"], "the refusal of the API server, and the name of the Swarm"),
        ],
    },
    Place {
        name: "The history, `SwarmHistory`",
        access: Resource(SWARM, "swarmhistories", untenanted(NONE, &["get"])),
        lines: &[
            Shown::new(
                &[
                    "episodes",
                    "episodes[].startMs",
                    "episodes[].endMs",
                    "episodes[].firstRevision",
                    "episodes[].lastRevision",
                    "episodes[].counts",
                    "episodes[].omitted",
                    "episodes[].editsOmitted",
                    "episodes[].isCut",
                    "episodes[].isOpen",
                    "episodes[].isGap",
                    "episodes[].outage",
                ],
                "times and numbers of moves, by reason, and the cause of an outage",
            ),
            Shown::new(
                &["episodes[].causes"],
                "names of jobs, workers and edited fields; of params the names, never the values",
            ),
            Shown::new(&["episodes[].holders"], "a digest of jobs and their workers"),
            Shown::new(
                &[
                    "episodes[].moves",
                    "episodes[].moves[].job",
                    "episodes[].moves[].from",
                    "episodes[].moves[].to",
                    "episodes[].moves[].reason",
                    "episodes[].moves[].revision",
                    "episodes[].moves[].releasedMs",
                    "episodes[].moves[].acknowledgedMs",
                    "episodes[].moves[].grantedMs",
                    "episodes[].moves[].runningMs",
                ],
                "names of jobs and workers, reasons and times",
            ),
            Shown::new(
                &["episodes[].edits", "episodes[].edits[].atMs", "episodes[].edits[].jobs"],
                "names of edited jobs",
            ),
            Shown::new(&["lives"], LIVES),
            Shown::new(
                &["episodes[].edits[].fields"],
                "names of edited fields, such as `params.url`; never the values",
            ),
        ],
    },
    Place {
        name: "The view of a session, `WorkerView`",
        access: Resource(SWARM, "workerviews", untenanted(&READS, &["list", "watch"])),
        lines: &[
            Shown::new(
                &["session", "worker", "incarnation", "revision", "count"],
                "names of the session and its worker, and counters",
            ),
            Shown::new(
                &["jobs", "jobs.NAME.token", "jobs.NAME.runOnce"],
                "names of jobs, with tokens",
            ),
            Shown::new(&["jobs.NAME.runner"], "names of runners"),
            Shown::new(&["jobs.NAME.params"], "`params` of jobs, with their values"),
            Shown::new(
                &["runner.*", "runners"],
                "commands, `env`, and templates of `files` of runners; of Secrets the names and keys",
            ),
            Shown::new(&["showOutput", "maxRestarting", "maxStarting"], "settings of the Swarm"),
            Shown::new(&["metadata.annotations.content"], "a digest of the view"),
        ],
    },
    Place {
        name: "The Lease of a session",
        access: Resource("coordination.k8s.io", "leases", untenanted(&["get"], &READS)),
        lines: &[
            Shown::new(
                &[
                    "metadata.labels.session",
                    "metadata.labels.swarm",
                    "metadata.labels.worker",
                    "spec.*",
                ],
                "names of the Swarm, the worker and the session, and times",
            ),
            Shown::new(
                &[
                    "ack",
                    "ack.write",
                    "ack.durationMs",
                    "ack.incarnation",
                    "ack.revision",
                    "ack.draining",
                    "stopping",
                    "stopping.write",
                    "stopping.reads",
                    "features",
                    "policy",
                ],
                "counters and words of the protocol",
            ),
            Shown::new(&["ack.finished", "ack.culprit", "stopping.jobs"], JOBS),
            Shown::new(&["predecessor"], "the name of another session"),
            Shown::new(
                &[
                    "failing",
                    "failing.count",
                    "failing.worst",
                    "failing.worst[].job",
                    "failing.worst[].state",
                    "failing.worst[].restarts",
                    "failing.worst[].sinceUnixS",
                ],
                "names of jobs that fail, numbers and times",
            ),
            Shown::new(&["lives"], LIVES),
            Shown::new(
                &["failing.worst[].lastExit"],
                "how such a job ended: the program or the check, with params; never a value of a Secret",
            ),
            Shown::new(
                &["failing.worst[].lastOutput"],
                "its last five lines of output, unless `showOutput` is false",
            ),
        ],
    },
    Place {
        name: "ConfigMaps of a pool: the view of plain workers, and files",
        access: Resource("", "configmaps", untenanted(NONE, &READS)),
        lines: &[
            Shown::new(
                &["version", "workloads", "workloads.NAME.slot", "workloads.NAME.version"],
                "names of workers, and counters",
            ),
            Shown::new(&["workloads.NAME.jobs"], "names of jobs, without their params"),
            Shown::new(&["keys of `NAME-files`"], "the files that `pool.managed.files` has"),
            Shown::new(
                &[
                    "metadata.annotations.owner",
                    "metadata.annotations.version",
                    "metadata.annotations.key",
                ],
                "the name of the Swarm, and a counter",
            ),
        ],
    },
    Place {
        name: "The ledger, `SwarmLedger`",
        access: Resource(SWARM, "swarmledgers", untenanted(NONE, &READS)),
        lines: &[
            Shown::new(&["swarm.*", "pool.*"], OBJECTS),
            Shown::new(&["writer.*"], "the name of a replica of the operator"),
            Shown::new(
                &[
                    "revision",
                    "version",
                    "firstToken",
                    "holdings",
                    "holdings.incarnation",
                    "holdings.longestLeaseMs",
                    "holdings.hasShares",
                    "holdings.parts",
                ],
                NUMBERS,
            ),
            Shown::new(
                &[
                    "holdings.holders",
                    "holdings.holders[].session",
                    "holdings.holders[].slot",
                    "holdings.holders[].worker",
                    "holdings.holders[].version",
                    "holdings.holders[].lastHandoffVersion",
                    "holdings.holders[].joined",
                    "holdings.holders[].jobs",
                    "holdings.holders[].releasing",
                    "holdings.waits",
                    "holdings.strikes",
                ],
                HOLDERS,
            ),
            Shown::new(
                &["metadata.annotations.sources", "metadata.annotations.parts-left"],
                "labels and names of ConfigMaps with lists of jobs",
            ),
        ],
    },
    Place {
        name: "A part of a ledger, `SwarmLedgerPart`",
        access: Resource(SWARM, "swarmledgerparts", untenanted(NONE, &["get", "list"])),
        lines: &[
            Shown::new(&["ledger"], "the name of the ledger"),
            Shown::new(
                &[
                    "holdings",
                    "holdings.holders",
                    "holdings.holders[].session",
                    "holdings.holders[].jobs",
                    "holdings.holders[].releasing",
                    "holdings.waits",
                    "holdings.strikes",
                ],
                HOLDERS,
            ),
        ],
    },
    Place {
        name: "Pods",
        access: Resource("", "pods", untenanted(NONE, &READS)),
        lines: &[Shown::new(
            &[
                "metadata.annotations.pool",
                "metadata.annotations.nudge",
                "metadata.annotations.started-with",
                "metadata.annotations.deletion-cost-before",
                "metadata.annotations.account",
                "metadata.annotations.files",
            ],
            "the UIDs of the Swarm and of the account, counters and digests",
        )],
    },
    Place {
        name: "The workload of a managed pool",
        access: Resource("apps", "statefulsets", untenanted(NONE, &READS)),
        lines: &[
            Shown::new(&["metadata.annotations.made-of"], "digests"),
            Shown::new(
                &["spec.template"],
                "the pod template of the Swarm; of the Secrets in `paramsFrom` the names and keys",
            ),
        ],
    },
    Place {
        name: "The log of a worker",
        access: Resource("", "pods/log", untenanted(NONE, NONE)),
        lines: &[Shown::new(
            &["each line"],
            "all output of jobs, also where `showOutput` is false, and how they end. The log of the operator \
             is in its own namespace: it has the messages of conditions",
        )],
    },
    Place {
        name: "The port of a worker",
        access: Port(9090),
        lines: &[
            Shown::new(&["/internal/health", "date", "version"], "the build of the program"),
            Shown::new(&["/internal/version"], "names of its jobs, and which of them do not run"),
            Shown::new(&["/ping"], "its name"),
            Shown::new(&["/metrics"], "numbers of jobs, with the labels below"),
            Shown::new(&["target"], "host and port of each target of a ping"),
        ],
    },
    Place {
        name: "The port of the operator",
        access: Port(8080),
        lines: &[
            Shown::new(&["/healthz", "/readyz", "date", "version"], "its health, and its build"),
            Shown::new(&["/replicas"], "names of the replicas, times and their shares"),
            Shown::new(&["/metrics"], "numbers of jobs and workers, with the labels below"),
            Shown::new(&["name", "namespace"], "the names of all Swarms"),
            Shown::new(
                &["cause", "ready", "reason", "request", "result", "state"],
                "words of fixed lists",
            ),
        ],
    },
];
