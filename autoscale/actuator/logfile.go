package actuator

import (
	"io"
	"os"
	"strings"
)

// maxLogBytes is the size from which on a log file is set aside.
const maxLogBytes = 16 << 20

// boundLog sets a log file aside that has grown too large, also below a running
// process: its end is copied to a second file and the first one cut to nothing. The
// process writes on, at the end, wherever that is. What it writes between the two steps
// is lost. So a process has two files of maxLog and what it writes between two rounds.
func (p *Process) boundLog(r *record) {
	path := p.logFile(r)
	s, err := os.Stat(path)
	if err != nil || s.Size() <= p.maxLog {
		return
	}
	if err := setAside(path, path+".1", s.Size()-p.maxLog, p.maxLog); err != nil {
		p.log.Warn().Err(err).Str("replica", r.ID).Msg("log not set aside")
	}
}

// setAside copies n bytes of a file from an offset on, and empties it.
func setAside(path, to string, from, n int64) error {
	src, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if _, err := src.Seek(from, io.SeekStart); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(dst, src, n)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return src.Truncate(0)
}

// lastLine is the last line that a process has written, shortened.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 1024)
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	n, _ := f.ReadAt(b, max(0, end-int64(len(b))))
	lines := strings.Split(strings.TrimSpace(string(b[:n])), "\n")
	s := []rune(strings.ToValidUTF8(lines[len(lines)-1], "?"))
	return string(s[:min(len(s), 200)])
}
