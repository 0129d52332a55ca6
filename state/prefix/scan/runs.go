package scan

// Runs are the lengths of what lies between the escapes of long strings, in bytes: for each
// string the runs before its escapes, which are all short ones, and lastRun. Where the
// next escape is can't be foreseen, so to look for it costs a processor more than to copy
// what lies before it. A cursor that checks a string has to; who decodes it then need not.
type Runs []uint16

// lastRun stands for what lies behind a string's last escape, however long.
const lastRun = 1<<16 - 1

// MostRuns is the capacity that Runs should have for a document of so many bytes. Strings
// with more escapes are decoded as fast without them.
func MostRuns(size int) int { return size/runBytes + 2 }

// runBytes is the mean distance of a string's escapes from which on its runs are noted.
const runBytes = 32

// runNote notes the runs of one string.
type runNote struct {
	on    bool // the runs are known so far
	runs  Runs
	first int // where the string's begin
	start int // of the string in the document
	from  int // of the present run
}

// noteRuns begins to note the runs of the string whose inner bytes begin at i.
func (c *Cursor) noteRuns(i int) runNote {
	return runNote{on: cap(c.runs) > 0, runs: c.runs, first: len(c.runs), start: i, from: i}
}

// run notes the run that ends before the short escape at i. A place is left for lastRun.
func (n *runNote) run(i int) {
	size, at := i-n.from, len(n.runs)
	if n.from = i + 2; size >= lastRun || at+1 >= cap(n.runs) {
		n.on = false
		return
	}
	n.runs = n.runs[:at+1]
	n.runs[at] = uint16(size)
}

// worth reports whether the runs are to be noted further at i, though escapes crowd there.
func (n *runNote) worth(i int) bool {
	n.on = n.on && len(n.runs)-n.first < runBytes+(i-n.start)/runBytes
	return n.on
}

// Of are the runs of a long string, nil if they are not known.
func (r Runs) Of(v Value) Runs {
	if v.Runs == 0 || int(v.Runs) > len(r) {
		return nil
	}
	return r[v.Runs-1:]
}

// First is the length of the first run of a string's inner bytes raw. ok is false where
// that is all that is left, or where it is not known.
func (r Runs) First(raw []byte) (n int, ok bool) {
	if len(r) == 0 || r[0] == lastRun || int(r[0]) > len(raw) {
		return len(raw), false
	}
	return int(r[0]), true
}

// Decode decodes a string's inner bytes, of which first are before the first escape and
// then as many as the runs behind the first say. It stops where dst is full, at the last run,
// and at one of 256 bytes or more. It returns how many bytes it wrote and read, and how
// many runs that were. Up to 159 bytes of dst behind those it wrote may change.
func (r Runs) Decode(dst, raw []byte, first int) (written, read, used int) {
	for n := first; n < 256 && written+n < len(dst) && read+n+1 < len(raw); n = int(r[used]) {
		copySome(dst[written:], raw[read:], n)
		written, read = written+n, read+n
		dst[written] = shortEscape[raw[read+1]]
		written, read = written+1, read+2
		if used++; used == len(r) {
			break
		}
	}
	return written, read, used
}

// copySome copies n bytes, less than 256, and what follows as it comes: two lengths for
// most, so that a processor need not guess.
func copySome(dst, src []byte, n int) {
	switch room := min(len(dst), len(src)); {
	case n <= 64 && room >= 64:
		to, from := (*[64]byte)(dst), (*[64]byte)(src)
		for i := 0; i < 64; i += 16 {
			*(*[16]byte)(to[i:]) = *(*[16]byte)(from[i:])
		}
	case n <= 160 && room >= 160:
		to, from := (*[160]byte)(dst), (*[160]byte)(src)
		for i := 0; i < 160; i += 16 {
			*(*[16]byte)(to[i:]) = *(*[16]byte)(from[i:])
		}
	default:
		copy(dst, src[:n])
	}
}
