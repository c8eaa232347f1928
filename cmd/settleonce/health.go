package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
)

func newHealth(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "health", Short: "Ask a running process whether it is well, for containers without a shell", GroupID: sectionTools,
		Example: "  settleonce health                            exit code 0: alive\n" +
			"  settleonce health --ready                    exit code 0: at work\n" +
			"  settleonce health --admin-address :9465\n" +
			"  settleonce health --url http://127.0.0.1:8090/healthz    the channel simulator",
		Args: cobra.NoArgs,
	}
	ready := cmd.Flags().Bool("ready", false, "ask /readyz instead of /healthz")
	url := cmd.Flags().String("url", "", "ask this address instead of the admin endpoints")
	timeout := cmd.Flags().Duration("timeout", 5*time.Second, "how long to wait for the answer")
	offer(cmd, config.GroupAdmin)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		target, err := healthTarget(cmd, p, *url, *ready)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return askHealth(ctx, cmd.OutOrStdout(), target)
	}
	return cmd
}

// healthTarget is the address to ask: the one given, else that of the settings.
func healthTarget(cmd *cobra.Command, p process, url string, ready bool) (string, error) {
	l, err := load(cmd, p)
	if err != nil || url != "" {
		return url, err
	}
	return healthURL(l.Config.Admin.Address, ready)
}

// healthURL turns the address that a process listens on into one to ask.
func healthURL(address string, ready bool) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", asUsage(fmt.Errorf("admin-address %q is not host:port: write it like :9464", address))
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	return "http://" + net.JoinHostPort(host, port) + path, nil
}

// askHealth prints the answer; anything but "well" is an error.
func askHealth(ctx context.Context, out io.Writer, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("nothing answers at %s, check that the process runs and admin-address is its own: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	const longest = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s, see its log: %s", url, resp.Status, body)
	}
	_, err = out.Write(body)
	return err
}
