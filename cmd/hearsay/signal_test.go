package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// The first signal ends what runs in order, a second one the process at once. A hang-up
// is a first one only.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	codes := make(chan int, 1)
	f := func(want int, signals ...syscall.Signal) {
		t.Helper()
		ctx, stop := untilSignal(func(code int) { codes <- code })
		defer stop()
		for i, s := range signals {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
				t.Fatalf("%v does not stop it", s)
			}
		}
		if want == 0 {
			return
		}
		select {
		case got := <-codes:
			if got != want {
				t.Errorf("%v: exit code %d, want %d", signals, got, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v: it goes on", signals)
		}
	}
	f(0, syscall.SIGINT)
	f(0, syscall.SIGTERM)
	f(130, syscall.SIGTERM, syscall.SIGINT)
	f(143, syscall.SIGINT, syscall.SIGTERM)
	f(143, syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM) // twice at once is once
	if signal.Ignored(syscall.SIGHUP) {
		return // the test runs under nohup
	}
	f(0, syscall.SIGHUP)
	f(130, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGINT)
	f(143, syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM)
}

// A router that runs takes SIGHUP as a word to read its configuration again; it goes on,
// and is stopped by the others as ever.
func TestHangupReloadsWhereItIsTaken(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("the test runs under nohup")
	}
	codes := make(chan int, 1)
	ctx, stop := untilSignal(func(code int) { codes <- code })
	defer stop()
	told := onHangup(ctx)
	for range 2 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-told:
		case <-time.After(20 * time.Second):
			t.Fatal("not told")
		}
		if ctx.Err() != nil {
			t.Fatal("stopped")
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
