package main

import "testing"

func TestASessionIsNamedToTheNextProcessInItsPlace(t *testing.T) {
	dir := t.TempDir()
	first, former, err := openState(dir, "pod")
	if err != nil || former != "" {
		t.Fatal(former, err)
	}
	if _, _, err := openState(dir, "pod"); err == nil {
		t.Fatal("two processes share a directory")
	}
	if err := first.note("pod-0000000000000007"); err != nil {
		t.Fatal(err)
	}
	first.lock.Close()
	next, former, err := openState(dir, "pod")
	if err != nil || former != "pod-0000000000000007" {
		t.Fatal(former, err)
	}
	next.lock.Close()
	if _, former, err := openState(dir, "another"); err != nil || former != "" {
		t.Fatal(former, err)
	}
}
