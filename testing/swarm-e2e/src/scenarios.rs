//! The registry of scenarios. They run in this order and share the operator.

mod alerts_fire_for_faults_of_the_operator;
mod alerts_fire_for_their_faults;
mod clocks_are_an_hour_apart;
mod cluster_runs_pods;
mod faults_do_what_they_say;
mod services_are_reached;

mod a_deployment_is_a_pool;
mod a_deployment_of_sessions_rolls_over;
mod a_lost_ledger_is_recreated;
mod a_missing_policy_is_noticed;
mod a_node_is_lost;
mod a_real_autoscaler_scales_the_pool;
mod a_swarm_borrows_no_rights;
mod a_worker_in_another_language;
mod a_worker_keeps_to_its_own_session;
mod claims_are_kept;
mod refusals_are_reported;
mod replicas_share_objects;
mod replicas_share_the_swarms;
mod rollouts_are_reported;
mod samples_apply_without_a_warning;
mod views_are_reconciled;

mod a_ledger_grows_while_it_runs;
mod a_lying_worker_harms_nobody_else;
mod bad_input_is_refused;
mod cold_start_waits;
mod documented_commands_work;
mod edits_go_in_steps;
mod escalations_are_refused;
mod every_field_takes_its_right;
mod every_right_is_used;
mod every_user_reads_every_kind_of_pool;
mod every_worker_runs_every_job;
mod go_pool;
mod histories_are_optional;
mod jobs_come_from_config_maps;
mod jobs_try_another_worker;
mod jobs_without_a_worker_have_a_reason;
mod late_writes_are_refused;
mod leases_pass_others_by;
mod ledgers_in_parts;
mod list_changes_arrive;
mod lists_that_are_missing_stop_nothing;
mod live_pools_are_shown;
mod managed_pools;
mod manifests_are_accepted;
mod moves_are_bounded;
mod nodes;
mod nodes_are_declared_off;
mod nodes_fall_silent;
mod nothing_is_written_at_rest;
mod operator_dies_at_any_write;
mod operator_dies_in_a_handover;
mod operators_that_do_not_share;
mod output_is_hidden;
mod owners;
mod parts_restart;
mod peers_ping_each_other;
mod pods_are_a_pool;
mod pods_of_several_kinds;
mod poison_jobs_are_set_aside;
pub(crate) mod pool;
mod pools_move_over_to_sessions;
mod pools_outlive_their_ledgers;
mod pools_that_do_not_fit_say_so;
mod prometheus_reads_a_pool;
mod rights_are_bound_by_namespace;
mod session;
pub(crate) mod session_pool;
mod session_workers_live_by_their_leases;
mod sessions_hand_over;
mod sessions_report_problems;
mod sessions_survive_changes;
mod sessions_survive_crashes;
mod stores_keep_their_contract;
mod streams_walk_through;
mod suspended_jobs_wait;
mod swarms_are_deleted_in_every_state;
mod the_api_in_memory_answers_as_the_real_one;
mod the_api_server_is_away;
mod the_chart_manages_an_installation;
mod the_installation_page_works;
mod the_operator_is_fenced;
mod the_operator_moves_to_its_namespace;
pub(crate) mod the_plugin_passes_flags_on;
mod the_predecessors_move_over;
mod the_store_is_rolled_back;
mod the_swarm_follows_its_jobs;
mod the_swarm_scales_its_pool;
mod two_versions_share_the_swarms;
mod uninstall_never_hangs;
mod upgrades_run_no_job_twice;
mod vault;
mod whole_worker_jobs_run_alone;
mod workers_report_what_they_run;
mod workers_restart;
mod workers_that_read_once_are_replaced;

use std::time::Duration;

use crate::scenario::{Scenario, Set};

/// The scenario that `run` of the module of its name, or the named function, carries out.
macro_rules! scenario {
    ($module:ident) => {
        scenario!($module as $module::run)
    };
    ($name:ident as $module:ident::$run:ident) => {
        Scenario::new(stringify!($name), |context| Box::pin($module::$run(context)))
    };
}

/// Every scenario there is. Where all run on one cluster, the last one removes the operator.
#[must_use]
pub fn all() -> Vec<Scenario> {
    let sets = [(Set::Second, second()), (Set::Soak, soak()), (Set::First, first())];
    sets.into_iter()
        .flat_map(|(set, all)| all.into_iter().map(move |scenario| scenario.of(set)))
        .collect()
}

/// The gate's scenarios on the first of two clusters.
fn first() -> Vec<Scenario> {
    vec![
        scenario!(cluster_runs_pods),
        scenario!(services_are_reached),
        scenario!(streams_walk_through),
        scenario!(list_changes_arrive),
        // They mostly wait, so several of them run at a time; the longest begin first.
        scenario!(managed_pools_say_what_is_wrong as managed_pools::refused).in_parallel(),
        scenario!(managed_pools_go_with_their_swarm as managed_pools::gone).in_parallel(),
        scenario!(a_deployment_is_a_pool).in_parallel(),
        scenario!(workers_that_read_once_are_replaced).in_parallel(),
        scenario!(a_swarm_borrows_no_rights).in_parallel(),
        scenario!(claims_are_kept).in_parallel(),
        scenario!(cold_start_waits).in_parallel(),
        scenario!(bad_input_is_refused).in_parallel(),
        scenario!(jobs_come_from_config_maps).in_parallel(),
        scenario!(moves_are_bounded).in_parallel(),
        scenario!(the_swarm_scales_its_pool).in_parallel(),
        scenario!(pods_are_a_pool).in_parallel(),
        scenario!(workers_report_what_they_run).in_parallel(),
        scenario!(manifests_are_accepted).in_parallel(),
        scenario!(samples_apply_without_a_warning).in_parallel(),
        scenario!(sessions_report_problems).in_parallel(),
        scenario!(pools_move_over_to_sessions).in_parallel(),
        scenario!(managed_pools_are_made as managed_pools::made).in_parallel(),
        scenario!(secrets_reach_jobs_alone as managed_pools::secret).in_parallel(),
        scenario!(a_worker_keeps_to_its_own_session).in_parallel(),
        scenario!(replicas_share_objects).in_parallel(),
        scenario!(the_plugin_passes_flags_on).in_parallel(),
        scenario!(the_operator_is_fenced).in_parallel(),
        scenario!(escalations_are_refused).in_parallel(),
        scenario!(rollouts_are_reported).in_parallel(),
        scenario!(views_are_reconciled).in_parallel(),
        scenario!(stores_keep_their_contract).in_parallel(),
        scenario!(the_predecessors_move_over).in_parallel(),
        scenario!(manifests_of_the_predecessors as the_predecessors_move_over::manifests)
            .in_parallel(),
        scenario!(every_worker_runs_every_job).in_parallel(),
        scenario!(whole_worker_jobs_run_alone).in_parallel(),
        scenario!(suspended_jobs_wait).in_parallel(),
        scenario!(managed_pools_are_kept_in_shape as managed_pools::kept).in_parallel(),
        scenario!(managed_pools_follow_their_runner as managed_pools::runners).in_parallel(),
        scenario!(jobs_try_another_worker).in_parallel(),
        scenario!(edits_go_in_steps).in_parallel(),
        scenario!(live_pools_are_shown).in_parallel(),
        scenario!(prometheus_reads_a_pool).in_parallel(),
        scenario!(jobs_without_a_worker_have_a_reason).in_parallel(),
        // Scenarios that judge times, or stop the operator or the API server, run alone.
        scenario!(a_worker_in_another_language),
        scenario!(managed_pools_need_their_rights as managed_pools::without_rights),
        scenario!(the_api_in_memory_answers_as_the_real_one),
        scenario!(a_lost_ledger_is_recreated),
        scenario!(a_ledger_grows_while_it_runs),
        scenario!(refusals_are_reported),
        scenario!(sessions_hand_over),
        scenario!(a_deployment_of_sessions_rolls_over),
        scenario!(a_lying_worker_harms_nobody_else),
        scenario!(session_workers_live_by_their_leases),
        scenario!(a_rolling_restart_keeps_jobs as workers_restart::rolled),
        scenario!(a_killed_worker_gets_its_jobs_back as workers_restart::killed),
        scenario!(sessions_survive_changes),
        scenario!(poison_jobs_are_set_aside),
        // It judges the requests of all of them.
        scenario!(every_right_is_used).after_all_others(),
        // It ends with the removal of the operator, so it comes last.
        scenario!(documented_commands_work).within(Duration::from_mins(8)),
    ]
}

/// The gate's scenarios on the second cluster: nodes, the operator's end, several of them, writes at rest.
fn second() -> Vec<Scenario> {
    vec![
        scenario!(replicas_share_the_swarms),
        scenario!(nothing_is_written_at_rest),
        scenario!(swarms_are_deleted_in_every_state),
        scenario!(rights_are_bound_by_namespace),
        scenario!(a_missing_policy_is_noticed),
        scenario!(operator_dies_at_any_write),
        scenario!(lists_that_are_missing_stop_nothing),
        scenario!(a_node_is_lost),
        scenario!(the_api_server_is_away),
        scenario!(operator_dies_in_a_handover),
        scenario!(the_store_is_rolled_back),
        scenario!(no_right_is_missing as every_right_is_used::none_is_missing).after_all_others(),
    ]
}

/// Scenarios that take long and rarely fail, which the gate leaves out.
fn soak() -> Vec<Scenario> {
    vec![
        // It sets the cluster back, so it comes before anything that would be confused by that.
        scenario!(faults_do_what_they_say),
        // They mostly wait, so several of them run at a time; the longest begin first.
        scenario!(the_swarm_follows_its_jobs).within(Duration::from_mins(8)).in_parallel(),
        scenario!(managed_pools_fit_their_swarm as managed_pools::fits).in_parallel(),
        scenario!(managed_pools_roll_over as managed_pools::rolled),
        scenario!(a_real_autoscaler_scales_the_pool).in_parallel(),
        scenario!(peers_ping_each_other).in_parallel(),
        scenario!(pools_outlive_their_ledgers),
        scenario!(pods_of_several_kinds_share_jobs as pods_of_several_kinds::run).in_parallel(),
        scenario!(output_is_hidden).in_parallel(),
        scenario!(pools_that_do_not_fit_say_so).in_parallel(),
        scenario!(leases_pass_others_by).in_parallel(),
        scenario!(previous_servers_read_their_list as the_predecessors_move_over::kept_server)
            .in_parallel(),
        scenario!(the_operator_moves_to_its_namespace),
        scenario!(uninstall_never_hangs),
        scenario!(the_chart_manages_an_installation).within(Duration::from_mins(10)),
        scenario!(the_installation_page_works).within(Duration::from_mins(8)),
        scenario!(managed_pools_roll_after_an_upgrade as managed_pools::upgraded),
        scenario!(operator_dies_while_it_makes_a_pool as managed_pools::killed),
        scenario!(parts_restart),
        scenario!(sessions_survive_crashes),
        scenario!(histories_are_optional),
        scenario!(alerts_fire_for_their_faults).within(Duration::from_mins(8)),
        scenario!(alerts_fire_for_faults_of_the_operator).within(Duration::from_mins(10)),
        // It sends some 3,500 writes, which would slow down the API server for others.
        scenario!(every_field_takes_its_right).within(Duration::from_mins(10)),
        scenario!(every_user_reads_every_kind_of_pool).within(Duration::from_mins(12)),
        scenario!(nodes_fall_silent),
        scenario!(nodes_are_declared_off),
        scenario!(operators_that_do_not_share),
        scenario!(replicas_die_for_ten_minutes as replicas_share_the_swarms::soak)
            .within(Duration::from_mins(20)),
        scenario!(two_versions_share_the_swarms).within(Duration::from_mins(8)),
        scenario!(upgrades_run_no_job_twice).within(Duration::from_mins(20)).after_previous(),
        scenario!(late_writes_are_refused),
        scenario!(clocks_are_an_hour_apart).within(Duration::from_mins(12)),
        scenario!(ledgers_in_parts_keep_the_contract as ledgers_in_parts::run)
            .within(Duration::from_mins(10)),
        scenario!(replicas_die_at_any_write as operator_dies_at_any_write::soak)
            .within(Duration::from_mins(40)),
    ]
}
