//go:build !linux

package proxy

import "time"

func newWatcher() (watcher, error) { return newPollWatcher(), nil }

func setUserTimeout(uintptr, time.Duration) {}
