package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// separate gives a command a network and process ids of its own: its ports are nobody
// else's, nothing of it is left when it ends, however it does.
func separate(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return nil
}

// addresses makes loopback and all of the Pods' network this network's own addresses.
func addresses() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	for _, set := range []struct {
		request uint
		address net.IP
	}{{unix.SIOCSIFADDR, podNet.IP}, {unix.SIOCSIFNETMASK, net.IP(podNet.Mask)}} {
		more, err := unix.NewIfreq("lo:1")
		if err != nil {
			return err
		}
		if err := more.SetInet4Addr(set.address.To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, set.request, more); err != nil {
			return fmt.Errorf("address %v: %w", set.address, err)
		}
	}
	return nil
}
