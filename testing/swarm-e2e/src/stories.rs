//! The registry of stories. They are told in this order and share the operator.

mod cluster_runs_pods;
mod faults_do_what_they_say;

mod a_deployment_is_a_pool;
mod a_deployment_of_sessions_rolls_over;
mod a_lost_ledger_is_made_anew;
mod a_node_is_lost;
mod a_worker_in_another_language;
mod a_worker_keeps_to_its_own_session;
mod claims_are_kept;
mod views_are_put_right;
mod what_the_cluster_refuses_is_told;

mod a_ledger_grows_while_it_runs;
mod bad_input_is_refused;
mod cold_start_waits;
mod documented_commands_work;
mod every_right_is_used;
mod go_pool;
mod jobs_come_from_config_maps;
mod ledgers_in_parts;
mod list_changes_arrive;
mod manifests_are_accepted;
mod moves_are_bounded;
mod nodes;
mod nodes_are_declared_off;
mod nodes_fall_silent;
mod nothing_is_written_at_rest;
mod operator_dies_at_any_write;
mod operator_dies_in_a_handover;
mod parts_restart;
mod pods_are_a_pool;
mod pods_of_several_kinds;
mod poison_jobs_are_set_aside;
pub(crate) mod pool;
mod pools_move_over_to_sessions;
mod session;
pub(crate) mod session_pool;
mod session_workers_live_by_their_leases;
mod sessions_hand_over;
mod sessions_survive_changes;
mod sessions_survive_crashes;
mod sessions_tell_what_is_amiss;
mod stores_keep_their_contract;
mod streams_walk_through;
mod the_api_server_is_away;
mod the_cluster_is_set_back;
mod the_swarm_scales_its_pool;
mod uninstall_never_hangs;
mod workers_restart;
mod workers_tell_what_they_run;
mod workers_that_read_once_are_replaced;

use std::time::Duration;

use crate::operator;
use crate::story::Story;

/// Every story there is.
#[must_use]
pub fn all() -> Vec<Story> {
    vec![
        Story::new("cluster_runs_pods", |it| Box::pin(cluster_runs_pods::tell(it))),
        // It sets the cluster back, so it comes before anything that would be confused by that.
        Story::new("faults_do_what_they_say", |it| Box::pin(faults_do_what_they_say::tell(it))),
        Story::new("streams_walk_through", |it| Box::pin(streams_walk_through::tell(it)))
            .in_namespace(operator::NAMESPACE)
            .within(Duration::from_mins(4)),
        Story::new("list_changes_arrive", |it| Box::pin(list_changes_arrive::tell(it))),
        Story::new("cold_start_waits", |it| Box::pin(cold_start_waits::tell(it))),
        Story::new("bad_input_is_refused", |it| Box::pin(bad_input_is_refused::tell(it))),
        Story::new("claims_are_kept", |it| Box::pin(claims_are_kept::tell(it)))
            .within(Duration::from_mins(4)),
        Story::new("a_lost_ledger_is_made_anew", |it| {
            Box::pin(a_lost_ledger_is_made_anew::tell(it))
        }),
        Story::new("views_are_put_right", |it| Box::pin(views_are_put_right::tell(it))),
        Story::new("what_the_cluster_refuses_is_told", |it| {
            Box::pin(what_the_cluster_refuses_is_told::tell(it))
        }),
        Story::new("nothing_is_written_at_rest", |it| {
            Box::pin(nothing_is_written_at_rest::tell(it))
        }),
        Story::new("stores_keep_their_contract", |it| {
            Box::pin(stores_keep_their_contract::tell(it))
        }),
        // Ledgers that are too large for one object.
        Story::new("ledgers_in_parts_keep_the_contract", |it| Box::pin(ledgers_in_parts::tell(it)))
            .within(Duration::from_mins(10)),
        Story::new("a_ledger_grows_while_it_runs", |it| {
            Box::pin(a_ledger_grows_while_it_runs::tell(it))
        })
        .within(Duration::from_mins(6)),
        Story::new("jobs_come_from_config_maps", |it| {
            Box::pin(jobs_come_from_config_maps::tell(it))
        }),
        Story::new("moves_are_bounded", |it| Box::pin(moves_are_bounded::tell(it))),
        Story::new("the_swarm_scales_its_pool", |it| Box::pin(the_swarm_scales_its_pool::tell(it))),
        Story::new("a_deployment_is_a_pool", |it| Box::pin(a_deployment_is_a_pool::tell(it)))
            .within(Duration::from_mins(6)),
        Story::new("pods_are_a_pool", |it| Box::pin(pods_are_a_pool::tell(it))),
        Story::new("workers_tell_what_they_run", |it| {
            Box::pin(workers_tell_what_they_run::tell(it))
        }),
        Story::new("workers_that_read_once_are_replaced", |it| {
            Box::pin(workers_that_read_once_are_replaced::tell(it))
        })
        .within(Duration::from_mins(6)),
        Story::new("manifests_are_accepted", |it| Box::pin(manifests_are_accepted::tell(it))),
        Story::new("uninstall_never_hangs", |it| Box::pin(uninstall_never_hangs::tell(it)))
            .within(Duration::from_mins(5)),
        // Sessions.
        Story::new("sessions_hand_over", |it| Box::pin(sessions_hand_over::tell(it)))
            .within(Duration::from_mins(5)),
        Story::new("a_deployment_of_sessions_rolls_over", |it| {
            Box::pin(a_deployment_of_sessions_rolls_over::tell(it))
        }),
        Story::new("pods_of_several_kinds_share_jobs", |it| {
            Box::pin(pods_of_several_kinds::tell(it))
        }),
        Story::new("sessions_tell_what_is_amiss", |it| {
            Box::pin(sessions_tell_what_is_amiss::tell(it))
        }),
        Story::new("pools_move_over_to_sessions", |it| {
            Box::pin(pools_move_over_to_sessions::tell(it))
        }),
        // Workers in sessions, as they are to whoever operates them.
        Story::new("a_worker_keeps_to_its_own_session", |it| {
            Box::pin(a_worker_keeps_to_its_own_session::tell(it))
        }),
        Story::new("session_workers_live_by_their_leases", |it| {
            Box::pin(session_workers_live_by_their_leases::tell(it))
        })
        .within(Duration::from_mins(5)),
        // Crashes.
        Story::new("operator_dies_at_any_write", |it| {
            Box::pin(operator_dies_at_any_write::tell(it))
        })
        .within(Duration::from_mins(5)),
        Story::new("parts_restart", |it| Box::pin(parts_restart::tell(it))),
        Story::new("a_node_is_lost", |it| Box::pin(a_node_is_lost::tell(it)))
            .within(Duration::from_mins(4)),
        Story::new("a_rolling_restart_keeps_jobs", |it| Box::pin(workers_restart::rolled(it))),
        Story::new("a_killed_worker_gets_its_jobs_back", |it| {
            Box::pin(workers_restart::killed(it))
        }),
        // Sessions.
        Story::new("a_worker_in_another_language", |it| {
            Box::pin(a_worker_in_another_language::tell(it))
        }),
        // Faults of pools with sessions, judged by their run logs.
        Story::new("sessions_survive_changes", |it| Box::pin(sessions_survive_changes::tell(it))),
        Story::new("sessions_survive_crashes", |it| Box::pin(sessions_survive_crashes::tell(it))),
        Story::new("nodes_fall_silent", |it| Box::pin(nodes_fall_silent::tell(it))),
        Story::new("nodes_are_declared_off", |it| Box::pin(nodes_are_declared_off::tell(it))),
        Story::new("the_api_server_is_away", |it| Box::pin(the_api_server_is_away::tell(it))),
        Story::new("operator_dies_in_a_handover", |it| {
            Box::pin(operator_dies_in_a_handover::tell(it))
        }),
        Story::new("poison_jobs_are_set_aside", |it| Box::pin(poison_jobs_are_set_aside::tell(it))),
        Story::new("the_cluster_is_set_back", |it| Box::pin(the_cluster_is_set_back::tell(it))),
        // What all of them have asked the API server for.
        Story::new("every_right_is_used", |it| Box::pin(every_right_is_used::tell(it)))
            .after_all_others(),
        // It ends with the removal of the operator, so it comes last.
        Story::new("documented_commands_work", |it| Box::pin(documented_commands_work::tell(it)))
            .in_namespace(operator::NAMESPACE)
            .within(Duration::from_mins(8)),
    ]
}
