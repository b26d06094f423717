//! Distinguishes the containers of this operator from the previous operator, which was written in
//! Go.

/// The name of the container of either operator, and of the Deployment of the operator in Go.
pub const CONTROLLER: &str = "swarm-controller";

/// The argument that makes a container run this operator.
const OUR_VERB: &str = "run";

/// Whether the operator in Go runs in a container with this name, command and arguments.
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
