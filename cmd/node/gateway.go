package node

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hearsay-llm/hearsay/proxy/gateway"
	"github.com/hearsay-llm/hearsay/state"
)

// GatewayConfig says who may use the client API.
type GatewayConfig struct {
	RequireKey bool        `yaml:"require_key"` // requests without a known key are refused
	Keys       []KeyConfig `yaml:"keys"`
}

// KeyConfig is one key of a client.
type KeyConfig struct {
	Name        string  `yaml:"name"`
	Hash        KeyHash `yaml:"hash"`         // of the key: the key itself stands nowhere
	Tenant      string  `yaml:"tenant"`       // whose it is; default: the name
	Priority    string  `yaml:"priority"`     // the highest it may claim: high | normal | low
	Weight      float64 `yaml:"weight"`       // its tenant's share beside others
	MaxParallel int     `yaml:"max_parallel"` // requests under way at a time, at each router; 0: any number
}

// KeyHash is sha256: and the SHA-256 of a key in hex.
type KeyHash string

// howToHash is how an operator makes one.
const howToHash = `printf %s "$KEY" | sha256sum`

func (h *KeyHash) parse(s string) error {
	if _, err := gateway.ParseDigest(s); err != nil {
		// What stands here may be a key: it is not repeated.
		return fmt.Errorf("%w: want sha256: and the 64 hex digits of %s", err, howToHash)
	}
	*h = KeyHash(s)
	return nil
}

// MarshalYAML writes no more of a hash than tells it from others.
func (h KeyHash) MarshalYAML() (any, error) {
	d, err := gateway.ParseDigest(string(h))
	if err != nil {
		return "", nil
	}
	return d.String(), nil
}

// priorities are the names of the bands that a key may be capped at.
var priorities = []string{state.BandHigh.String(), state.BandNormal.String(), state.BandLow.String()}

// setDefaults fills what a key left out.
func (k *KeyConfig) setDefaults() {
	if k.Tenant == "" {
		k.Tenant = k.Name
	}
	if k.Priority == "" {
		k.Priority = state.BandNormal.String()
	}
	if k.Weight == 0 {
		k.Weight = 1
	}
}

// keyName is what keys and tenants may be called: names are labels of metrics.
var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

const (
	keyNameWanted = "1 to 64 letters, digits, '.', '_', '@' or '-', of which the first is a letter or a digit"
	maxWeight     = 1000
)

func (g *GatewayConfig) validate(v *faults) {
	if g.RequireKey && len(g.Keys) == 0 {
		v.add("gateway.require_key", "is true and gateway.keys is empty, so that nobody could ask for anything: add a key")
	}
	names, hashes, tenants := map[string]int{}, map[string]int{}, map[string]int{}
	empty := gateway.DigestOf(nil)
	for i := range g.Keys {
		k := &g.Keys[i]
		at := fmt.Sprintf("gateway.keys[%d]", i)
		switch first, twice := names[k.Name]; {
		case k.Name == "":
			v.add(at+".name", "is missing")
		case !keyName.MatchString(k.Name):
			v.add(at+".name", "%q is no name: want %s", k.Name, keyNameWanted)
		case k.Name == "other":
			v.add(at+".name", "is other, which metrics call all keys beyond the first hundred: choose another")
		case twice:
			v.add(at+".name", "%q stands twice: it is gateway.keys[%d]'s too", k.Name, first)
		default:
			names[k.Name] = i
		}
		hash := strings.ToLower(string(k.Hash))
		d, _ := gateway.ParseDigest(hash)
		switch first, twice := hashes[hash]; {
		case hash == "":
			v.add(at+".hash", "is missing: want sha256: and the 64 hex digits of %s", howToHash)
		case d == empty:
			v.add(at+".hash", "is that of an empty text: $KEY was not set when it was made")
		case twice:
			v.add(at+".hash", "stands twice: gateway.keys[%d] is the same key", first)
		default:
			hashes[hash] = i
		}
		if k.Name != "" && k.Tenant != k.Name && !keyName.MatchString(k.Tenant) {
			v.add(at+".tenant", "%q is no name: want %s", k.Tenant, keyNameWanted)
		}
		v.oneOf(at+".priority", k.Priority, priorities)
		if !(k.Weight > 0 && k.Weight <= maxWeight) {
			v.add(at+".weight", "is %v: more than 0 and at most %d", k.Weight, maxWeight)
		}
		if first, shared := tenants[k.Tenant]; !shared {
			tenants[k.Tenant] = i
		} else if w := g.Keys[first].Weight; w != k.Weight && k.Tenant != "" {
			v.between(at+".weight", fmt.Sprintf("gateway.keys[%d].weight", first),
				"is %v, and %v in gateway.keys[%d] of the same tenant %q: a tenant has one weight", k.Weight, w, first, k.Tenant)
		}
		if k.MaxParallel < 0 {
			v.add(at+".max_parallel", "is %d: 1 or more, or 0 for no limit", k.MaxParallel)
		}
	}
}

// keys is what the proxy knows of the keys. The configuration is valid.
func (g *GatewayConfig) keys() gateway.Config {
	out := gateway.Config{RequireKey: g.RequireKey}
	for i := range g.Keys {
		k := &g.Keys[i]
		digest, _ := gateway.ParseDigest(string(k.Hash))
		highest, _ := state.ParseBand(k.Priority)
		out.Keys = append(out.Keys, gateway.Key{
			Name: k.Name, Digest: digest, Tenant: k.Tenant, Cap: highest, Weight: k.Weight, MaxParallel: k.MaxParallel,
		})
	}
	return out
}
