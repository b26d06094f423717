//! The operator in Go that came before this one, and how the containers of the two are told apart.

/// The name of the container of either operator, and of the Deployment that was installed with the one
/// in Go.
pub const CONTROLLER: &str = "swarm-controller";

/// The argument by which a container runs this operator.
const OUR_VERB: &str = "run";

/// Whether the operator in Go runs in a container of this name, with these words of command and
/// arguments.
///
/// ```
/// use swarm_spec::predecessor::runs_in;
///
/// assert!(runs_in("swarm-controller", ["internal"]));
/// assert!(!runs_in("swarm-controller", ["swarm-operator", "run"]));
/// assert!(!runs_in("web", ["internal"]));
/// ```
pub fn runs_in<'a>(container: &str, words: impl IntoIterator<Item = &'a str>) -> bool {
    container == CONTROLLER && words.into_iter().all(|word| word != OUR_VERB)
}
