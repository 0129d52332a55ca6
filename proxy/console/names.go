package console

import (
	"slices"
	"strings"
)

// names are what people call routers, by id. Two routers of one name are told apart
// by what follows it: name/id.
type names map[string]string

func namesOf(list []Member) names {
	count := map[string]int{}
	for _, m := range list {
		count[m.Name]++
	}
	n := names{}
	for _, m := range list {
		switch {
		case m.Name == "":
		case count[m.Name] > 1:
			n[m.ID] = m.Name + "/" + m.ID
		default:
			n[m.ID] = m.Name
		}
	}
	return n
}

// of is a router's name, or what was given: the id of a router that membership has
// forgotten, or somebody who is no router.
func (n names) of(id string) string {
	if s, ok := n[id]; ok {
		return s
	}
	return id
}

func (n names) all(ids []string) []string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, n.of(id))
	}
	slices.Sort(out)
	return out
}

// findMember gives the ids of the routers that are called so: by id, by name, or
// by both as name/id.
func findMember(list []Member, given string) (ids []string) {
	for _, m := range list {
		if m.ID == given || m.Name+"/"+m.ID == given {
			return []string{m.ID}
		}
		if strings.EqualFold(m.Name, given) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
