package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	checkTimeout  = 5 * time.Second
	maxModelsBody = 1 << 20
)

// Check asks every target which models it serves, and says of those where nothing would
// succeed why. A target that answers without a list of models is left to the replay. It
// takes 5 s at most, and a valid Config.
func Check(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	dial := cfg.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	faults := make([]error, len(cfg.Targets))
	var wg sync.WaitGroup
	for i, target := range cfg.Targets {
		wg.Go(func() {
			if err := checkTarget(ctx, &client, &cfg, target); err != nil {
				faults[i] = fmt.Errorf("target %s %w", target, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(faults...)
}

func checkTarget(ctx context.Context, client *http.Client, cfg *Config, target string) error {
	chat, err := endpointURL(target, Chat)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(chat, Chat.path())+"/v1/models", nil)
	if err != nil {
		return err
	}
	if cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	resp, err := client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("does not answer within %v: name another one with --target, or wait until it does", checkTimeout)
		}
		return fmt.Errorf("can't be reached: %w: start a router or an engine there, or name another one with --target", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return fmt.Errorf("answers %d: it asks for another API key", resp.StatusCode)
	}
	var doc struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModelsBody))
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &doc) != nil || len(doc.Data) == 0 {
		return nil
	}
	var has []string
	for _, m := range doc.Data {
		has = append(has, m.ID)
	}
	if slices.Contains(has, cfg.Model) {
		return nil
	}
	return fmt.Errorf("does not serve %q: it has %s", cfg.Model, strings.Join(has, ", "))
}
