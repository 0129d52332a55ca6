//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

var errLinux = errors.New("a network of its own for this takes Linux")

func separate(*exec.Cmd) error { return errLinux }

func addresses() error { return errLinux }
