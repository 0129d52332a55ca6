package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages are what proxies come in, by the name of the program.
var packages = map[string]string{"nginx": "nginx-light", "haproxy": "haproxy"}

// provide sees to it that the proxies that are to be measured are there.
func provide(ctx context.Context, o *options, proxies []string) error {
	var missing, pkgs []string
	for _, name := range proxies {
		pkg := packages[name]
		if _, err := exec.LookPath(name); pkg != "" && err != nil {
			missing, pkgs = append(missing, name), append(pkgs, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err := exec.LookPath("apt-get")
	if !o.install || err != nil || os.Getuid() != 0 {
		return fmt.Errorf("%s not found: install the packages %s (-install does so on Debian, as root), or leave them out by -proxies",
			strings.Join(missing, " and "), strings.Join(pkgs, " and "))
	}
	fmt.Fprintf(o.progress, "installing %s\n", strings.Join(pkgs, " and "))
	return install(ctx, missing, pkgs)
}

// policy is asked by Debian's packages whether they may start a service.
const policy = "/usr/sbin/policy-rc.d"

// install installs packages without their services being started or enabled.
func install(ctx context.Context, services, pkgs []string) (err error) {
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	switch {
	case err == nil:
		_, err = f.WriteString("#!/bin/sh\nexit 101\n")
		defer func() { err = errors.Join(err, os.Remove(policy)) }()
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrExist): // one that is there is respected
		return err
	}
	apt := append([]string{"install", "-y", "--no-install-recommends"}, pkgs...)
	for _, argv := range [][]string{{"apt-get", "update"}, append([]string{"apt-get"}, apt...)} {
		if err := command(ctx, argv...); err != nil {
			return err
		}
	}
	for _, s := range services {
		if err := command(ctx, "update-rc.d", s, "disable"); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program; its output is in the error only.
func command(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}
