// A worker that takes part in swarm's handover protocol, in Go, with the standard library only.
//
// It is written from docs/protocol.md and shares no code with the workers in Rust. session.go has the
// rules, and this file carries them out: it writes the Lease, follows the WorkerView, and runs jobs.
// Its jobs are loops that write the run log. It is for tests and for reading, and never shipped.
package main

import (
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// boottime reads CLOCK_BOOTTIME, which also runs while the machine is suspended. Go's own monotonic
// clock stops then.
func boottime() time.Duration {
	const clockBoottime = 7
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		die("no CLOCK_BOOTTIME: " + errno.Error())
	}
	return time.Duration(t.Nano())
}

// die ends the process, and with it every job, at once. The next process is another session.
func die(why string) {
	log.Print(why, "; every job ends with the process")
	os.Exit(1)
}

// guard ends the process if jobs still run at the deadline.
//
// A goroutine is weaker than a separate thread: it runs only when Go's scheduler lets it, and it
// cannot fire while the runtime has stopped the world. Here a goroutine is enough, since the jobs are
// goroutines of the same runtime: a cause that delays the guard delays the jobs too. After a freeze
// either may run first, so every job also asks the guard right before it acts (alive). If jobs are
// threads, C code or other processes, their guard must be a separate thread or process.
type guard struct{ deadline, jobs atomic.Int64 }

func (g *guard) watch() {
	for {
		left := time.Duration(g.deadline.Load()) - boottime()
		if left <= 0 && g.jobs.Load() > 0 {
			die("the Lease ran out while jobs ran")
		}
		// The sleep is short, because it does not count the time while the machine is suspended.
		time.Sleep(min(max(left, time.Millisecond), 50*time.Millisecond))
	}
}

func (g *guard) alive() {
	if boottime() >= time.Duration(g.deadline.Load()) {
		die("a job would have acted after the deadline")
	}
}

type worker struct {
	name    string
	every   time.Duration // The time between two ticks of a job in the run log.
	takes   time.Duration // The time that a job takes to stop.
	grace   time.Duration
	session *session
	cluster *cluster
	guard   guard
	runLog  *os.File
	state   *state
	events  chan any
	stops   map[string]chan struct{}
}

// note writes a line of the run log: one write, and the clock read right before it.
func (w *worker) note(job string, token uint64, event string) {
	line, err := json.Marshal(struct {
		T       int64  `json:"t"`
		Job     string `json:"job"`
		Worker  string `json:"worker"`
		Session string `json:"session"`
		Token   uint64 `json:"token"`
		Event   string `json:"event"`
	}{int64(boottime()), job, w.name, w.session.id, token, event})
	if err == nil {
		_, err = w.runLog.Write(append(line, '\n'))
	}
	if err != nil {
		log.Print("run log: ", err)
	}
}

// run is a job: it writes ticks into the run log until it is stopped. With runOnce it ends after the
// span in its parameter `for`.
func (w *worker) run(job string, g grant, stop <-chan struct{}) {
	w.guard.alive()
	w.note(job, g.Token, "start")
	ticks := time.NewTicker(w.every)
	defer ticks.Stop()
	var done <-chan time.Time
	if g.RunOnce {
		span, _ := time.ParseDuration(g.Params["for"])
		done = time.After(span)
	}
	var event any
	for stopping := (<-chan time.Time)(nil); event == nil; {
		select {
		case <-ticks.C:
			w.guard.alive()
			w.note(job, g.Token, "tick")
		case <-stop: // The job stops slowly, to show that the acknowledgement waits for it.
			stop, done, stopping = nil, nil, time.After(w.takes)
		case <-stopping:
			event = joined{job}
		case <-done:
			event = finished{job}
		}
	}
	w.note(job, g.Token, "stop")
	w.guard.jobs.Add(-1)
	w.events <- event
}

func (w *worker) carryOut(effect any) (isOver bool) {
	switch e := effect.(type) {
	case start:
		log.Printf("start %s under token %d", e.job, e.grant.Token)
		stop := make(chan struct{})
		w.stops[e.job] = stop
		w.guard.jobs.Add(1)
		go w.run(e.job, e.grant, stop)
	case stop:
		log.Printf("stop %s", e.job)
		close(w.stops[e.job])
	case write:
		go func() { w.events <- w.cluster.writeLease(e) }()
	case readLease:
		number := w.session.writes
		go func() { w.events <- w.cluster.readLease(number) }()
	case readView:
		go func() { w.events <- w.cluster.readView() }()
	case abort:
		die(e.why)
	case over:
		return true
	}
	return false
}

// live drives the session to its end.
func (w *worker) live(effects []any) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGCONT)
	go w.guard.watch()
	go w.cluster.follow(w.events)
	for isNoted := false; ; {
		if !isNoted && w.session.lease != nil {
			if isNoted = true; w.state.note(w.session.id) != nil {
				log.Print("the next process will not know this session")
			}
		}
		// The guard comes first, because a new job asks it at once.
		w.guard.deadline.Store(int64(w.session.deadline))
		for _, effect := range effects {
			if w.carryOut(effect) {
				return
			}
		}
		var event any
		select {
		case event = <-w.events:
		case signal := <-signals:
			event = tick{} // After SIGCONT the session checks the deadline first.
			if signal == syscall.SIGTERM {
				log.Print("draining")
				event = terminate{w.grace}
			}
		case <-time.After(min(w.session.wakesAt()-boottime(), 100*time.Millisecond)):
			event = tick{}
		}
		effects = w.session.step(boottime(), event)
	}
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	var t terms
	w := worker{name: os.Getenv("POD_NAME"), events: make(chan any, 64), stops: map[string]chan struct{}{}}
	flag.DurationVar(&t.duration, "lease", 20*time.Second, "how long it may act after it sent a renewal")
	flag.DurationVar(&t.renew, "renew", 4*time.Second, "how often it renews")
	flag.DurationVar(&t.stopTimeout, "stop-timeout", 5*time.Second, "how long its jobs have to stop")
	flag.DurationVar(&w.grace, "grace", 25*time.Second, "how long it lives after SIGTERM, at most")
	flag.DurationVar(&w.every, "tick", 100*time.Millisecond, "how often a job says that it runs")
	flag.DurationVar(&w.takes, "stop-takes", 200*time.Millisecond, "how long a job takes to stop")
	stateDir := flag.String("state-dir", "", "where to note the session for the next process of this container")
	runLog := flag.String("run-log", "/run-log/run.log", "where jobs say that they run")
	flag.Parse()
	if least := 3*t.renew + t.stopTimeout; t.duration < least {
		die(fmt.Sprintf("a lease of %v is too short: at least 3 × renew + stop timeout = %v", t.duration, least))
	}
	var nonce [8]byte
	rand.Read(nonce[:])
	id := fmt.Sprintf("%s-%x", os.Getenv("POD_UID"), nonce)
	var former string
	var err error
	if w.state, former, err = openState(*stateDir, os.Getenv("POD_UID")); err != nil {
		die("state directory: " + err.Error())
	}
	if w.cluster, err = inCluster(id, former, t); err != nil {
		die("not in a cluster: " + err.Error())
	}
	if w.runLog, err = os.OpenFile(*runLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666); err != nil {
		die("run log: " + err.Error())
	}
	log.Print("session ", id)
	var effects []any
	w.session, effects = openSession(id, t, boottime())
	w.live(effects)
	log.Print("closed")
}
