package sim

import "time"

// Unhurried gives the server's own callbacks time that a pause of the machine does not use up: one that took
// longer would come twice, or after the answer that it is to come before.
func (s *Server) Unhurried() { s.early, s.news.client.Timeout = time.Minute, time.Minute }

// DrainFor sets what requests under way get when the server stops.
func (s *Server) DrainFor(d time.Duration) { s.drain = d }
