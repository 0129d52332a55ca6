package sketch

// up is the parent of e, nil when it has none or it was removed.
func (r *replica) up(e *entry) *entry {
	if p := e.parent; p != nil && p.gone {
		e.parent, e.known = nil, false
	}
	return e.parent
}

// link makes the entry known below parent (nil = the root) with l's token count.
// The closest parent wins, as a mark between two known ones must take over its
// share of the child's tokens; the measured correction merges by the larger.
func (r *replica) link(e, parent *entry, l *Link) (news bool) {
	est, scale := e.est, max(e.scale, l.Scale)
	switch up := r.up(e); {
	case !e.known:
		e.known, news, est = true, true, l.Tokens
		r.adopt(e, parent)
	default:
		var has, wants uint64
		if up != nil {
			has = up.hash
		}
		if parent != nil {
			wants = parent.hash
		}
		if has == wants {
			est = min(est, l.Tokens)
		} else if (l.Tokens < est || l.Tokens == est && wants > has) && r.adopt(e, parent) {
			est = l.Tokens
		}
	}
	news = r.recount(e, est, scale) || news
	if len(r.owed) > 0 {
		r.settleOwed(e)
	}
	return news
}

// adopt hangs e below parent, unless that would close a ring.
func (r *replica) adopt(e, parent *entry) bool {
	if parent == e.parent {
		return true
	}
	if e.kids > 0 {
		n := 0
		for p := parent; p != nil; p = r.up(p) {
			if n++; p == e || n > MaxLinks {
				return false
			}
		}
	} else if parent == e {
		return false
	}
	if e.parent != nil {
		e.parent.kids--
		r.made = append(r.made, e.parent)
	}
	e.parent, r.book.dirty = parent, r.book.n > 0
	if parent == nil {
		return true
	}
	parent.kids++
	if use := e.use.Load(); use != never {
		r.touch(parent, use+1, e.began)
	}
	if !e.answer() {
		r.confirm(parent)
	}
	r.extend(e)
	return true
}

// chain makes links known below the mark parent, oldest first, and returns the
// deepest entry, or nil when a bound refused one.
func (r *replica) chain(parent uint64, links []Link) (leaf *entry, news bool) {
	if len(links) == 0 {
		return nil, false
	}
	var up *entry
	if parent != 0 {
		if up, _ = r.obtain(parent); up == nil {
			return nil, false
		}
	}
	for i := range links {
		e, _ := r.obtain(links[i].Hash)
		if e == nil {
			return nil, news
		}
		news = r.link(e, up, &links[i]) || news
		up = e
	}
	return up, news
}

// confirm notes that a prompt with this mark, and so with its ancestors, was
// prefilled. Ancestors of a confirmed mark are confirmed.
func (r *replica) confirm(e *entry) (changed bool) {
	for n := 0; e != nil && n < MaxLinks && e.answer(); e, n = r.up(e), n+1 {
		e.state.Store(e.state.Load() | promptFlag)
		changed = true
	}
	return changed
}

// recount sets the entry's token count and keeps the sums right.
func (r *replica) recount(e *entry, est uint32, scale uint16) bool {
	if e.est == est && e.scale == scale {
		return false
	}
	before := e.tokens()
	e.est, e.scale = est, scale
	switch d := e.tokens() - before; {
	case held(e.state.Load()):
		r.ages.held += d
	case e.use.Load() != never:
		r.ages.grow(r.ages.find(e.use.Load()), d)
	}
	return true
}
