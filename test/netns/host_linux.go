package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// tunPath is the device that makes network devices whose other end is a process.
const tunPath = "/dev/net/tun"

// ifName is the device of every host.
const ifName = "eth0"

// Missing says what this machine lacks for a Net; nil if nothing.
func Missing() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("it needs root, to make network namespaces (sudo make ...)"))
	}
	if _, err := os.Stat(tunPath); err != nil {
		errs = append(errs, fmt.Errorf("it needs %s (modprobe tun; in a container --device %s --cap-add NET_ADMIN --cap-add SYS_ADMIN): %w", tunPath, tunPath, err))
	}
	return errors.Join(errs...)
}

// Net is hosts on one switch. Its methods are for one goroutine, those of Switch and Host for any.
type Net struct {
	*Switch
	hosts []*Host
}

// New returns a network without hosts.
func New(seed uint64) (*Net, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	return &Net{Switch: NewSwitch(seed)}, nil
}

// Host is a network namespace with one address. Safe for concurrent use.
type Host struct {
	Name string
	IP   netip.Addr

	tun  *os.File
	ns   int // file descriptor of the namespace
	path string
	work chan func()
}

// Host makes one more host, at 10.77.0.n, from 1.
func (n *Net) Host(name string) (*Host, error) {
	if len(n.hosts) >= 250 {
		return nil, errors.New("a network has at most 250 hosts")
	}
	h := &Host{Name: name, IP: netip.AddrFrom4([4]byte{10, 77, 0, byte(len(n.hosts) + 1)}), ns: -1, work: make(chan func())}
	ready := make(chan error)
	go h.live(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	n.hosts = append(n.hosts, h)
	p := n.attach(name, h.IP, h.tun)
	go func() {
		b := make([]byte, 1<<16)
		for {
			k, err := h.tun.Read(b)
			if err != nil {
				return
			}
			n.pass(p, b[:k])
		}
	}()
	return h, nil
}

// live is the thread that is in the namespace as long as the host is. It is never given back: the thread ends with
// the goroutine.
func (h *Host) live(ready chan<- error) {
	runtime.LockOSThread()
	err := h.enter()
	ready <- err
	if err != nil {
		return
	}
	for f := range h.work {
		f()
	}
}

// enter puts the calling thread into a new namespace and gives that an address.
func (h *Host) enter() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	h.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	if h.ns, err = unix.Open(h.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if h.tun, err = openTun(); err != nil {
		return err
	}
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(sock) }()
	if err := setAddr(sock, unix.SIOCSIFADDR, h.IP); err != nil {
		return fmt.Errorf("address %v: %w", h.IP, err)
	}
	if err := setAddr(sock, unix.SIOCSIFNETMASK, netip.AddrFrom4([4]byte{255, 255, 255, 0})); err != nil {
		return fmt.Errorf("netmask: %w", err)
	}
	return errors.Join(up(sock, "lo"), up(sock, ifName))
}

func openTun() (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", tunPath, err)
	}
	ifr, err := unix.NewIfreq(ifName)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make a tun device: %w", err)
	}
	return os.NewFile(uintptr(fd), tunPath), nil
}

func setAddr(sock int, req uint, a netip.Addr) error {
	ifr, err := unix.NewIfreq(ifName)
	if err != nil {
		return err
	}
	ip := a.As4()
	if err := ifr.SetInet4Addr(ip[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(sock, req, ifr)
}

func up(sock int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}

// Do runs f on the host's thread: what it opens and starts is the host's. A child that is to end with its parent's
// thread lives as long as the host.
func (h *Host) Do(f func() error) error {
	done := make(chan error)
	h.work <- func() { done <- f() }
	return <-done
}

// Path is the namespace's file, for other processes while this one lives.
func (h *Host) Path() string { return h.path }

// DialContext connects from the host, to an address that is no name.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := In(h.ns, func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// In runs f on a thread of its own within the namespace of an open file: sockets that f itself opens, in no other
// goroutine, are there.
func In(ns int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Close ends all hosts. Processes there, if any still run, lose their network.
func (n *Net) Close() {
	for _, h := range n.hosts {
		_ = h.tun.Close()
		_ = unix.Close(h.ns)
		close(h.work)
	}
	n.hosts = nil
}
