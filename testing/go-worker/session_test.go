package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Scenarios of one session. The terms: lease 20 s, renewal every 4 s, stop timeout 5 s.

const me = "pod-0000000000000001"

func granted(revision uint64, jobs ...string) viewed {
	v := view{Session: me, Revision: revision, Jobs: map[string]grant{}}
	for _, job := range jobs {
		v.Jobs[job[:1]] = grant{Token: uint64(job[1] - '0')}
	}
	return viewed{v}
}

func of(v viewed, change func(*view)) viewed {
	change(&v.view)
	return v
}

func landed(number uint64) written { return written{number, stored{"uid", fmt.Sprint(number)}} }

func read(uid string, holder holder, number uint64) leaseRead {
	return leaseRead{&lease{stored{uid, fmt.Sprint(number)}, holder, number}}
}

// brief abbreviates effects:
//   - "+a7" starts a under token 7, and "-a" stops it.
//   - "w2 r=3" is write 2 with the acknowledgement of revision 3.
//   - A "d" after it means that the session drains.
//   - "4 but a" means that view 4 is carried out, except that a still stops.
//   - "closes" marks the last write.
func brief(effects []any) string {
	var all []string
	for _, effect := range effects {
		switch e := effect.(type) {
		case start:
			all = append(all, fmt.Sprintf("+%s%d", e.job, e.grant.Token))
		case stop:
			all = append(all, "-"+e.job)
		case write:
			text := fmt.Sprintf("w%d r=%d", e.number, e.ack.Revision)
			if e.ack.Draining {
				text += " d"
			}
			if e.stopping != nil {
				names := slices.Sorted(maps.Keys(e.stopping.Jobs))
				text += fmt.Sprintf(" %d but %s", e.stopping.Reads, strings.Join(names, ""))
			}
			if e.holder == closed {
				text += " closes"
			}
			all = append(all, text)
		default:
			all = append(all, reflect.TypeOf(effect).Name())
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

type step struct {
	at    float64
	event any
	want  string
}

var lives = map[string][]step{
	"a granted job starts and the view is acknowledged at once": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
	},
	"a view is acknowledged after the jobs that it takes away were joined": {
		{1, granted(3, "a7", "b7"), "+a7, +b7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4, "b7"), "-a"},
		{3, joined{"a"}, "w3 r=4"},
	},
	"a job that ended is reported half a second after the view while another still stops": {
		{1, granted(3, "a7", "b7", "c7"), "+a7, +b7, +c7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4, "c7"), "-a, -b"},
		{2.01, joined{"a"}, ""},
		{2.49, tick{}, ""},
		{2.5, tick{}, "w3 r=3 4 but b"},
		{2.6, landed(3), ""},
		{6.4, tick{}, ""},
		{6.5, tick{}, "w4 r=3 4 but b"}, // The renewal, for an operator that has just begun.
		{6.6, landed(4), ""},
		{7, joined{"b"}, "w5 r=4"},
	},
	"jobs that all stop within half a second take one write": {
		{1, granted(3, "a7", "b7"), "+a7, +b7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4), "-a, -b"},
		{2.1, joined{"a"}, ""},
		{2.4, joined{"b"}, "w3 r=4"},
		{2.5, landed(3), ""},
		{4, tick{}, ""},
	},
	"while no job has ended no statement is made": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4), "-a"},
		{4.9, tick{}, ""},
		{5, tick{}, "w3 r=3"},
	},
	"a view that follows quickly delays no statement": {
		{1, granted(3, "a7", "b7"), "+a7, +b7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4), "-a, -b"},
		{2.1, joined{"a"}, ""},
		{2.3, granted(5, "c1"), "+c1"},
		{2.5, tick{}, "w3 r=3 5 but b"},
	},
	"a lost write is repeated with the state of that moment": {
		{1, granted(3, "a7", "b7", "c7"), "+a7, +b7, +c7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(4), "-a, -b, -c"},
		{2.1, joined{"a"}, ""},
		{2.5, tick{}, "w3 r=3 4 but bc"},
		{2.6, joined{"b"}, ""},
		{4.5, lost{3}, ""},
		{5.4, tick{}, ""},
		{5.5, tick{}, "w4 r=3 4 but c"},
	},
	"a job that is granted again starts after the old run was joined": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{1, landed(2), ""},
		{2, granted(5, "a8"), "-a"},
		{3, joined{"a"}, "+a8, w3 r=5"},
	},
	"older, equal and foreign views are dropped": {
		{1, granted(3), "w2 r=3"},
		{1, landed(2), ""},
		{2, granted(3, "a7"), ""},
		{2, granted(2, "a7"), ""},
		{2, of(granted(9, "a7"), func(v *view) { v.Session = "pod-0000000000000002" }), ""},
	},
	"a later incarnation of the ledger ends the session": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{1, landed(2), ""},
		{2, of(granted(1, "a1"), func(v *view) { v.Incarnation = 1 }), "-a, w3 r=3 d"},
		{3, landed(3), ""},
		{3, joined{"a"}, "w4 r=3 d closes"},
		{4, landed(4), "over"},
	},
	"without renewal jobs stop in time and resume after a read of the view": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{1, lost{2}, ""},
		{2, tick{}, "w3 r=3"},
		{14.9, tick{}, ""},
		{15, tick{}, "-a"},
		{16, joined{"a"}, ""},
		{90, lost{3}, ""},
		{91, tick{}, "w4 r=3"},
		{92, landed(4), "readView"},
		{92, viewRead{nil}, ""},
		{92, viewRead{&view{Session: me, Revision: 3}}, "+a7"},
		{111, tick{}, "abort"}, // Counted from 91, when it was sent.
	},
	"a job that was granted in a pause starts after a read of the view": {
		{15, granted(3, "a7"), "w2 r=3"},
		{15, landed(2), "readView"},
		{15, viewRead{&view{Session: me, Revision: 3}}, "+a7"},
	},
	"a view that went back ends the session": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{15, tick{}, "-a"},
		{16, joined{"a"}, ""},
		{17, landed(2), "readView, w3 r=3"},
		{17, viewRead{&view{Session: me, Revision: 2}}, ""},
		{18, landed(3), "readView, w4 r=3 d closes"},
	},
	"a conflict over our own write counts from its sending": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{2, conflict{2}, "readLease"},
		{2, read("uid", held, 2), ""},
		{16, tick{}, "-a, w3 r=3"}, // Sent at 1: suspended at 21 - 5.
	},
	"an older write that landed late does not extend the deadline": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{2, lost{2}, ""},
		{3, tick{}, "w3 r=3"},
		{3, conflict{3}, "readLease"},
		{3, read("uid", held, 2), "w4 r=3"},
		{15, tick{}, "-a"},
	},
	"a missing Lease ends the session at once": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{2, conflict{2}, "readLease"},
		{2, leaseRead{nil}, "abort"},
	},
	"a revoked Lease ends the session at once": {
		{1, conflict{2}, ""},
		{4, tick{}, "w2 r=0"},
		{4, conflict{2}, "readLease"},
		{4, read("uid", revoked, 1), "abort"},
	},
	"a Lease of our name that is another object ends the session at once": {
		{4, tick{}, "w2 r=0"},
		{4, conflict{2}, "readLease"},
		{4, read("other", held, 2), "abort"},
	},
	"SIGTERM lets jobs be moved, then stops the rest": {
		{1, granted(3, "a7", "b7"), "+a7, +b7, w2 r=3"},
		{1, landed(2), ""},
		{2, terminate{20 * time.Second}, "w3 r=3 d"},
		{2, landed(3), ""},
		{3, granted(4, "b7"), "-a"},
		{3, joined{"a"}, "w4 r=4 d"},
		{3, landed(4), ""},
		{7, tick{}, "w5 r=4 d"},
		{7, landed(5), ""},
		{17, tick{}, "-b, w6 r=4 d"},
		{17, landed(6), ""},
		{18, joined{"b"}, "w7 r=4 d closes"},
		{18, landed(7), "over"},
	},
	"an emptied session that drains closes early": {
		{2, terminate{20 * time.Second}, "w2 r=0 d closes"},
	},
	"a finished job is reported and does not run again": {
		{1, granted(3, "a7"), "+a7, w2 r=3"},
		{1, landed(2), ""},
		{2, finished{"a"}, "w3 r=3"},
		{3, granted(4, "a8"), "+a8"},
	},
}

func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func opened() *session {
	s, effects := openSession(me, terms{at(20), at(4), at(5)}, 0)
	if got := brief(effects); got != "w1 r=0" {
		panic(got)
	}
	s.step(at(1), landed(1))
	return s
}

func TestLives(t *testing.T) {
	for name, steps := range lives {
		s := opened()
		for i, step := range steps {
			if got := brief(s.step(at(step.at), step.event)); got != step.want {
				t.Errorf("%s: step %d: %q, not %q", name, i, got, step.want)
			}
		}
	}
}

func TestALeaseMadeByALaterWriteIsClosedUnused(t *testing.T) {
	s, _ := openSession(me, terms{at(20), at(4), at(5)}, 0)
	s.step(at(2), lost{1})
	s.step(at(3), tick{})
	if got := brief(s.step(at(3), landed(2))); got != "w3 r=0 d closes" {
		t.Error(got)
	}
}

func TestTheLeaseAsAnObject(t *testing.T) {
	c := cluster{id: me, terms: terms{duration: 20 * time.Second}}
	w := write{3, &stored{"uid", "41"}, held, ack{1, 12, map[string]uint64{"a": 7}, true}, nil}
	text, _ := json.Marshal(c.object(w).Metadata)
	want := `{"name":"pod-0000000000000001","uid":"uid","resourceVersion":"41",` +
		`"labels":{"swarm.k8slab.info/session":"true"},"annotations":{"swarm.k8slab.info/ack":` +
		`"{\"write\":3,\"durationMs\":20000,\"incarnation\":1,\"revision\":12,\"finished\":{\"a\":7},\"draining\":true}"}}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
	w.stopping = &stopping{13, map[string]uint64{"b": 7}}
	said := c.object(w).Metadata.Annotations["swarm.k8slab.info/stopping"]
	if said != `{"write":3,"reads":13,"jobs":{"b":7}}` {
		t.Error(said)
	}
}
