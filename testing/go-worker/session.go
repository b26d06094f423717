package main

import (
	"maps"
	"time"
)

// This file has the rules of a session, as a state machine: events go in with a reading of the clock,
// effects come out. It does no I/O, so its cases are tables (session_test.go). docs/protocol.md numbers
// the rules.

type grant struct {
	Token   uint64            `json:"token"`
	RunOnce bool              `json:"runOnce,omitempty"`
	Params  map[string]string `json:"params,omitempty"`
}

type view struct {
	Session     string           `json:"session"`
	Incarnation uint64           `json:"incarnation"`
	Revision    uint64           `json:"revision"`
	Jobs        map[string]grant `json:"jobs"`
}

// ack is the report about jobs in every write; ackAnnotation adds the other keys.
type ack struct {
	Incarnation uint64            `json:"incarnation,omitempty"`
	Revision    uint64            `json:"revision,omitempty"`
	Finished    map[string]uint64 `json:"finished,omitempty"`
	Draining    bool              `json:"draining,omitempty"`
}

func (a ack) equals(b ack) bool {
	return a.Incarnation == b.Incarnation && a.Revision == b.Revision && a.Draining == b.Draining &&
		maps.Equal(a.Finished, b.Finished)
}

// stopping is the second annotation of an acknowledgement (rule 13a): all jobs that are still being
// stopped, with their tokens. It is complete or missing, since a missing name proves an end.
type stopping struct {
	Reads uint64            `json:"reads"`
	Jobs  map[string]uint64 `json:"jobs"`
}

const (
	stoppingMax      = 256
	stoppingBytesMax = 24 << 10
	paceMax          = 500 * time.Millisecond
)

// equals compares the names of one view by their number, because the names only become fewer.
func (s *stopping) equals(t *stopping) bool {
	return s == nil && t == nil || s != nil && t != nil && s.Reads == t.Reads && len(s.Jobs) == len(t.Jobs)
}

// stored names one stored state of the Lease. The UID is part of it: a PUT that names a version but no
// UID recreates a deleted Lease, since the API server lets Leases be made by PUT.
type stored struct{ uid, version string }

type holder int

const (
	held holder = iota
	closed
	revoked
)

// lease is the part of our Lease that the session reads.
type lease struct {
	stored
	holder holder
	number uint64
}

// Events. An answer has the number of its write.
type (
	tick    struct{}
	viewed  struct{ view view }
	written struct { // A write succeeded and made this state.
		number uint64
		stored stored
	}
	conflict  struct{ number uint64 } // A write was refused: the Lease has changed since we read it.
	lost      struct{ number uint64 } // No answer in time: the write may have landed, or may land later.
	leaseRead struct{ lease *lease }  // Our Lease from a new read; nil if it does not exist.
	viewRead  struct{ view *view }    // Our view from a new read; nil if it does not exist.
	joined    struct{ job string }    // No process of the job is left.
	finished  struct{ job string }    // A run-to-completion job has succeeded.
	terminate struct{ grace time.Duration }
)

// Effects, to be carried out in order.
type (
	start struct {
		job   string
		grant grant
	}
	stop  struct{ job string }
	write struct {
		number   uint64
		expected *stored // nil creates the Lease.
		holder   holder
		ack      ack
		stopping *stopping // nil leaves the annotation out.
	}
	readLease struct{}
	readView  struct{}
	abort     struct{ why string } // End the process and every job at once.
	over      struct{}             // The Lease is closed, and no job runs.
)

type phase int

const (
	open phase = iota
	draining
	closing
	ended
)

type terms struct{ duration, renew, stopTimeout time.Duration }

type run struct {
	token    uint64
	stopping bool
}

type pending struct {
	number uint64
	sent   time.Duration
	holder holder
	ack    ack
	part   *stopping
}

// session is one instance of one worker. Times are readings of CLOCK_BOOTTIME.
type session struct {
	id       string
	terms    terms
	phase    phase
	stopAt   time.Duration // The time at which a draining session stops its remaining jobs.
	adopted  bool          // Whether a view set the incarnation.
	seen     uint64        // The greatest revision that the session acted on.
	acked    uint64
	life     uint64 // The incarnation of `seen`.
	granted  map[string]grant
	runs     map[string]*run
	finished map[string]uint64
	lease    *stored
	deadline time.Duration
	verified bool // Whether a read proved that the view was not rolled back since jobs last had to stop.
	pending  *pending
	writes   uint64
	ackMade  ack           // Of the last write that landed.
	said     bool          // Whether a job that was taken away since acked has ended, or does not run.
	viewedAt time.Duration // The time of the latest view, or of an earlier one with an open statement.
	partMade *stopping     // Of the last write that landed.
	retrying bool
	renewAt  time.Duration
}

func openSession(id string, terms terms, now time.Duration) (*session, []any) {
	s := &session{
		id: id, terms: terms, verified: true, renewAt: now,
		granted: map[string]grant{}, runs: map[string]*run{}, finished: map[string]uint64{},
	}
	return s, s.settle(now, nil)
}

func (s *session) step(now time.Duration, event any) (effects []any) {
	if s.phase == ended {
		return nil
	}
	if s.deadline <= now && len(s.runs) > 0 { // This check comes first, for any event.
		return s.abort("jobs still run at the deadline")
	}
	switch e := event.(type) {
	case viewed:
		s.see(now, e.view)
	case written:
		effects = s.wrote(now, e.number, e.stored)
	case conflict:
		if s.isPending(e.number) {
			effects = append(effects, readLease{})
		}
	case lost:
		if s.isPending(e.number) {
			s.giveUp(now)
		}
	case leaseRead:
		effects = s.readLease(now, e.lease)
	case viewRead:
		if e.view == nil { // The next renewal asks again; until then no job resumes.
		} else if e.view.Incarnation == s.life && e.view.Revision >= s.seen {
			s.verified = true
		} else {
			s.drain(now) // The store was rolled back.
		}
	case joined:
		s.ended(e.job)
	case finished:
		if run := s.runs[e.job]; run != nil {
			s.finished[e.job] = run.token
			s.ended(e.job)
		}
	case terminate:
		s.drain(now + e.grace - s.terms.stopTimeout)
	}
	return s.settle(now, effects)
}

func (s *session) see(now time.Duration, v view) {
	switch {
	case v.Session != s.id || s.adopted && v.Incarnation < s.life:
	case s.adopted && v.Incarnation > s.life:
		s.drain(now) // A rebuilt ledger has no record of our grants.
	case v.Revision > s.seen:
		if s.acked == s.seen || s.partMade.equals(s.part()) {
			s.viewedAt = now
		}
		s.said = s.said && s.acked != s.seen
		for job, grant := range s.granted {
			s.said = s.said || s.runs[job] == nil && v.Jobs[job].Token != grant.Token
		}
		s.adopted, s.life, s.seen, s.granted = true, v.Incarnation, v.Revision, v.Jobs
		maps.DeleteFunc(s.finished, func(job string, token uint64) bool {
			return !s.isGranted(job, token)
		})
	}
}

func (s *session) ended(job string) {
	if run := s.runs[job]; run != nil && !s.isGranted(job, run.token) {
		s.said = true
	}
	delete(s.runs, job)
}

// part returns a write's statement about jobs that are still being stopped; nil if it makes none.
func (s *session) part() *stopping {
	if s.acked == s.seen || !s.said {
		return nil
	}
	part, bytes := stopping{s.seen, map[string]uint64{}}, 0
	for job, run := range s.runs {
		if !s.isGranted(job, run.token) {
			part.Jobs[job] = run.token
			bytes += 2*len(job) + 24 // Quotes, colon, comma and the longest token; each character may be escaped.
		}
	}
	if len(part.Jobs) > stoppingMax || bytes > stoppingBytesMax {
		return nil
	}
	return &part
}

// partAt returns the time of the next write that only makes that statement.
func (s *session) partAt() time.Duration {
	part := s.part()
	if part == nil || part.equals(s.partMade) || s.lease == nil {
		return never
	}
	at := max(s.viewedAt, s.renewAt-s.terms.renew) + min(s.terms.renew/8, paceMax)
	if s.retrying {
		at = max(at, s.renewAt)
	}
	return at
}

func (s *session) isGranted(job string, token uint64) bool {
	grant, ok := s.granted[job]
	return ok && grant.Token == token
}

func (s *session) isPending(number uint64) bool {
	return s.pending != nil && s.pending.number == number
}

func (s *session) wrote(now time.Duration, number uint64, made stored) []any {
	if !s.isPending(number) {
		return nil
	}
	landed := s.pending
	s.pending = nil
	s.made(now, number, made)
	if landed.holder == closed {
		s.phase = ended
		return []any{over{}}
	}
	s.deadline = max(s.deadline, landed.sent+s.terms.duration)
	s.ackMade, s.partMade = landed.ack, landed.part
	if !s.verified {
		return []any{readView{}}
	}
	return nil
}

// made notes that the Lease is as our write made it. If a later write than the first created it, an
// earlier one may have landed without an answer, been revoked and deleted. Then the session ends
// unused.
func (s *session) made(now time.Duration, number uint64, made stored) {
	if s.lease == nil && number != 1 {
		s.drain(now)
	}
	s.lease = &made
}

func (s *session) readLease(now time.Duration, l *lease) []any {
	switch {
	case l == nil && s.lease == nil: // The Lease was not made yet, or the read is older than the write.
		s.giveUp(now)
	case l == nil || s.lease != nil && l.uid != s.lease.uid:
		return s.abort("the Lease vanished")
	case l.holder == held && s.isPending(l.number):
		return s.wrote(now, l.number, l.stored)
	case l.holder == held: // An earlier write landed late. It does not extend the deadline.
		s.pending = nil
		s.made(now, l.number, l.stored)
	case l.holder == closed && s.phase == closing:
		s.phase = ended
		return []any{over{}}
	default:
		return s.abort("the Lease is revoked, closed or of another holder")
	}
	return nil
}

func (s *session) giveUp(now time.Duration) {
	s.pending, s.retrying, s.renewAt = nil, true, now+s.terms.renew/4
}

func (s *session) drain(stopAt time.Duration) {
	switch s.phase {
	case open:
		s.phase, s.stopAt = draining, stopAt
	case draining:
		s.stopAt = min(s.stopAt, stopAt)
	}
}

func (s *session) abort(why string) []any {
	s.phase = ended
	return []any{abort{why}}
}

func (s *session) mayRun(now time.Duration) bool {
	inTime := now < s.deadline-s.terms.stopTimeout && s.verified
	return inTime && (s.phase == open || s.phase == draining && now < s.stopAt)
}

// settle brings jobs and Lease in line with the grants and the permission to run.
func (s *session) settle(now time.Duration, effects []any) []any {
	if s.phase == ended {
		return effects
	}
	if s.deadline-s.terms.stopTimeout <= now && len(s.runs)+len(s.granted) > 0 {
		s.verified = false
	}
	mayRun, allJoined := s.mayRun(now), true
	for job, run := range s.runs {
		isGranted := s.isGranted(job, run.token)
		if !(mayRun && isGranted) && !run.stopping {
			run.stopping = true
			effects = append(effects, stop{job})
		}
		allJoined = allJoined && isGranted
	}
	for job, grant := range s.granted {
		token, isDone := s.finished[job]
		if mayRun && s.runs[job] == nil && !(isDone && token == grant.Token) {
			s.runs[job] = &run{token: grant.Token}
			effects = append(effects, start{job, grant})
		}
	}
	if allJoined {
		s.acked = s.seen
	}
	isEmptied := len(s.granted) == 0 && s.acked == s.seen
	if s.phase == draining && len(s.runs) == 0 && (s.stopAt <= now || isEmptied) {
		s.phase = closing
	}
	return s.write(now, effects)
}

func (s *session) write(now time.Duration, effects []any) []any {
	a := ack{s.life, s.acked, maps.Clone(s.finished), s.phase != open}
	hasNews := s.lease != nil && (!a.equals(s.ackMade) || s.phase == closing || s.partAt() <= now) &&
		!(s.retrying && now < s.renewAt)
	if s.pending != nil || !hasNews && now < s.renewAt {
		return effects
	}
	as := held
	if s.phase == closing {
		as = closed
	}
	s.writes++
	s.retrying, s.renewAt = false, now+s.terms.renew
	part := s.part()
	s.pending = &pending{s.writes, now, as, a, part}
	return append(effects, write{s.writes, s.lease, as, a, part})
}

const never = time.Duration(1<<63 - 1)

// wakesAt returns the next time at which the session acts without another event.
func (s *session) wakesAt() time.Duration {
	at := never
	if s.pending == nil {
		at = min(s.renewAt, s.partAt())
	}
	isStopping := len(s.runs) > 0
	for _, run := range s.runs {
		isStopping = isStopping && run.stopping
	}
	if s.phase == draining && !isStopping {
		at = min(at, s.stopAt)
	}
	if len(s.runs) > 0 && !isStopping {
		at = min(at, s.deadline-s.terms.stopTimeout)
	}
	if len(s.runs) > 0 {
		at = min(at, s.deadline)
	}
	return at
}
