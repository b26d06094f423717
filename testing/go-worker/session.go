package main

import (
	"maps"
	"time"
)

// The rules of a session, as a machine: events go in with the reading of the clock, effects come out.
// It does no I/O, so its cases are tables (session_test.go). docs/protocol.md numbers the rules.

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

// ack is what the session tells of its jobs with every write; see told for the rest.
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

// stopping is the annotation beside the acknowledgement (rule 13a): all that is still being stopped,
// with the tokens it runs under. It is complete or missing, since a name that is missing proves an end.
type stopping struct {
	Reads uint64            `json:"reads"`
	Jobs  map[string]uint64 `json:"jobs"`
}

const (
	stoppingMax      = 256
	stoppingBytesMax = 24 << 10
	paceMax          = 500 * time.Millisecond
)

// equals compares the names of one view by their number: they only become fewer.
func (s *stopping) equals(t *stopping) bool {
	return s == nil && t == nil || s != nil && t != nil && s.Reads == t.Reads && len(s.Jobs) == len(t.Jobs)
}

// stored names one stored state of the Lease. The UID is part of it: a PUT that names a version but
// no UID makes a Lease that is gone anew, since the API server lets Leases be made by PUT.
type stored struct{ uid, version string }

type holder int

const (
	held holder = iota
	closed
	revoked
)

// lease is what was read of our Lease.
type lease struct {
	stored
	holder holder
	number uint64
}

// Events. Answers carry the number of the write they belong to.
type (
	tick    struct{}
	viewed  struct{ view view }
	written struct { // A write succeeded and made this state.
		number uint64
		stored stored
	}
	conflict  struct{ number uint64 } // A write was refused: the Lease is not what we saw.
	lost      struct{ number uint64 } // No answer in time; it may have landed, or may still.
	leaseRead struct{ lease *lease }  // Our Lease, read afresh; nil if there is none.
	viewRead  struct{ view *view }    // Our view, read afresh; nil if there is none.
	joined    struct{ job string }    // Nothing of the job is left.
	finished  struct{ job string }    // A job that runs once has ended well.
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
		stopping *stopping // nil to say nothing of it.
	}
	readLease struct{}
	readView  struct{}
	abort     struct{ why string } // End the process, and with it every job, at once.
	over      struct{}             // Closed, and nothing runs.
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

// session is one life of one worker. Times are readings of CLOCK_BOOTTIME.
type session struct {
	id       string
	terms    terms
	phase    phase
	stopAt   time.Duration // While draining: when the rest is stopped.
	adopted  bool          // Whether a view told the incarnation.
	seen     uint64        // The greatest revision acted on.
	acked    uint64
	life     uint64 // The incarnation that seen counts in.
	granted  map[string]grant
	runs     map[string]*run
	finished map[string]uint64
	lease    *stored
	deadline time.Duration
	verified bool // Whether the views were not rolled back since jobs were last suspended.
	pending  *pending
	writes   uint64
	told     ack
	said     bool          // Whether something has ended, or does not run, that was taken away since acked.
	viewedAt time.Duration // Of the latest view, or of an earlier one that left something to say.
	toldPart *stopping
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
	if s.deadline <= now && len(s.runs) > 0 { // Before anything else, whatever woke us.
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
		if e.view == nil { // Asked again after the next renewal; until then nothing resumes.
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
		s.drain(now) // A ledger that was rebuilt knows nothing of what we were granted.
	case v.Revision > s.seen:
		if s.acked == s.seen || s.toldPart.equals(s.part()) {
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

// part is what a write says of jobs that are still being stopped; nil if that is nothing.
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

// partAt is when a write is due that says no more than that.
func (s *session) partAt() time.Duration {
	part := s.part()
	if part == nil || part.equals(s.toldPart) || s.lease == nil {
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
	s.told, s.toldPart = landed.ack, landed.part
	if !s.verified {
		return []any{readView{}}
	}
	return nil
}

// made notes that our write is what the Lease says. If a later write than the first created it, an
// earlier one may have landed unheard, been revoked and deleted: then the session ends unused.
func (s *session) made(now time.Duration, number uint64, made stored) {
	if s.lease == nil && number != 1 {
		s.drain(now)
	}
	s.lease = &made
}

func (s *session) readLease(now time.Duration, l *lease) []any {
	switch {
	case l == nil && s.lease == nil: // Never made; the read may be older than the write.
		s.giveUp(now)
	case l == nil || s.lease != nil && l.uid != s.lease.uid:
		return s.abort("the Lease vanished")
	case l.holder == held && s.isPending(l.number):
		return s.wrote(now, l.number, l.stored)
	case l.holder == held: // An earlier write landed late. It prolongs nothing.
		s.pending = nil
		s.made(now, l.number, l.stored)
	case l.holder == closed && s.phase == closing:
		s.phase = ended
		return []any{over{}}
	default:
		return s.abort("somebody else holds the Lease")
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

// settle brings jobs and Lease in line with what is granted and allowed now.
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
	hasNews := s.lease != nil && (!a.equals(s.told) || s.phase == closing || s.partAt() <= now) &&
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

// wakesAt is when the mere passing of time next changes something.
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
