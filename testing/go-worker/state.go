package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// state is a directory that outlives the process: an emptyDir of this container alone. A process that
// gets its lock knows that the previous process has ended, and so has the session that it noted.
type state struct {
	dir  string
	lock *os.File // Held until the process ends.
}

// openState opens the directory. It also returns the previous session, if one was noted and belongs to
// the same pod.
func openState(dir, pod string) (*state, string, error) {
	if dir == "" {
		return nil, "", nil
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, "", err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, "", err
	}
	text, _ := os.ReadFile(filepath.Join(dir, "session"))
	former := strings.TrimSpace(string(text))
	if !strings.HasPrefix(former, pod+"-") {
		former = ""
	}
	return &state{dir, lock}, former, nil
}

// note stores this process's session for the next process, once its Lease exists.
func (s *state) note(session string) error {
	if s == nil {
		return nil
	}
	path := filepath.Join(s.dir, "session")
	if err := os.WriteFile(path+".new", []byte(session+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
