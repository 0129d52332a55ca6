//go:build !linux

package netns

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Missing says what this machine lacks for a Net.
func Missing() error { return errors.New("it needs Linux: its network namespaces") }

// Net can't be had here.
type Net struct{ *Switch }

// Host can't be had here.
type Host struct {
	Name string
	IP   netip.Addr
}

// New fails.
func New(uint64) (*Net, error) { return nil, Missing() }

// Host fails.
func (n *Net) Host(string) (*Host, error) { return nil, Missing() }

// Close does nothing.
func (n *Net) Close() {}

// Do fails.
func (h *Host) Do(func() error) error { return Missing() }

// Path is empty.
func (h *Host) Path() string { return "" }

// DialContext fails.
func (h *Host) DialContext(context.Context, string, string) (net.Conn, error) { return nil, Missing() }

// In fails.
func In(int, func() error) error { return Missing() }
