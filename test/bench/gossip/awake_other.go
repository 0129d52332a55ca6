//go:build !linux

package main

import "errors"

func keepAwake() (stop func(), err error) { return func() {}, nil }

func spin() error { return errors.New("needs Linux") }
