package actuator

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// started tells one process from a later one with the same pid: the kernel's start
// time in clock ticks since boot, with the boot's id, since both count anew after
// it. It is empty when there is no such process, or only its zombie.
func started(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	ticks, ok := parseStat(b)
	if !ok {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return ticks + "@" + string(bytes.TrimSpace(boot))
}

// parseStat reads the start time from a line of /proc/<pid>/stat. The command's
// name, in parentheses, may hold anything, parentheses too.
func parseStat(b []byte) (start string, alive bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return "", false
	}
	f := bytes.Fields(b[i+1:])
	// Field 3 (state) is the first after the name; field 22 is the start time.
	if len(f) < 20 || len(f[0]) != 1 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return "", false
	}
	if _, err := strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return "", false
	}
	return string(f[19]), true
}

// marked lists the processes that have the marker in their environment: an engine and
// what it started.
func marked(marker string) (pids []int, err error) {
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("no /proc")
	}
	want := []byte(markerName + "=" + marker)
	for _, p := range list {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // gone, or another user's
		}
		for v := range bytes.SplitSeq(b, []byte{0}) {
			if !bytes.Equal(v, want) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err == nil && started(pid) != "" {
				pids = append(pids, pid)
			}
			break
		}
	}
	return pids, nil
}
