//! The JSON of a Card, which every version of a member reads.

use serde_json::{from_value, json, to_value};

use super::*;

#[test]
fn the_card_of_a_member_is_written_with_the_set_that_it_acts_by() {
    let hosts: Hosts = [("labels".parse().unwrap(), Weight::new(7).unwrap())].into();
    let member = MemberId::new("swarm-0", 1234).unwrap();
    let acts_by = Members::new([(member, hosts.clone())]);
    let card = Card { is_leaving: true, acts_by, ..Card::new(hosts.clone()) };
    let written = json!({
        "protocol": { "least": 1, "most": 1 },
        "hosts": { "labels": 7 },
        "leaving": true,
        "actsBy": { "swarm-0-00000000000004d2": { "labels": 7 } },
    });
    assert_eq!(to_value(&card).unwrap(), written);
    assert_eq!(from_value::<Card>(written).unwrap(), card);
    let short = json!({ "protocol": { "least": 1, "most": 1 }, "hosts": { "labels": 7 } });
    assert_eq!(from_value::<Card>(short).unwrap(), Card::new(hosts));
    for wrong in [json!({ "Labels": 7 }), json!({ "labels": 0 }), json!({ "labels": 101 })] {
        assert!(from_value::<Hosts>(wrong.clone()).is_err(), "{wrong}");
    }
    assert!(from_value::<Members>(json!({ "swarm-0": {} })).is_err());
}
