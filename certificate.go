package pinion

import (
	"context"
	"errors"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/buckets"
	"github.com/pinion-mr/pinion/pmr"
)

// Where routers keep the table of owners from before the log begins.
const (
	stateStore = "STATE"
	tableKey   = "table"
)

// CutState is what the log has at the position of a certificate's cut.
type CutState string

// The states of a cut.
const (
	CutFound   CutState = "found"   // the cut of the certificate's job and attempt
	CutPurged  CutState = "purged"  // the log begins behind it
	CutDiffers CutState = "differs" // something else, or the log ends before it
)

// CertificateCheck is what became of checking a certificate against the log.
type CertificateCheck struct {
	Cut   CutState
	Table uint64 // position of the table of owners that it was compared with: the cut's, or a later one
	pmr.CertificateCheck
}

// Err is nil if the certificate is right and could be checked: a COVERAGE error says that it is wrong, a NOT_FOUND
// one that the log does not tell any more. That the cut itself was purged is no fault, since nothing depends on it
// if all else is right.
func (c CertificateCheck) Err() error {
	switch {
	case c.Cut == CutDiffers:
		return api.Errorf(api.CodeCoverage, "the certificate is wrong: its cut is not in the log")
	case len(c.Faults) > 0:
		return api.Errorf(api.CodeCoverage, "the certificate is wrong: %s", c.Faults[0].Text)
	case len(c.Open) > 0:
		return api.Errorf(api.CodeNotFound, "the certificate cannot be checked as a whole: who owned %s at the cut was purged from the log", buckets.Ranges(c.Open)).
			WithHint("check certificates before the log is purged beyond them")
	}
	return nil
}

// Certificate fetches the certificate of a job that is done, of any client. It is kept as long as the job's result.
// Errors: BUSY if the job has not ended, UNKNOWN_JOB, and what the job failed with.
func (c *Client) Certificate(ctx context.Context, job string) (api.Certificate, error) {
	var cert api.Certificate
	if err := c.request(ctx, "job.certificate", api.CertificateRequest{Job: job}, &cert); err != nil {
		return cert, err
	}
	return cert, cert.Readable()
}

// CheckCertificate checks a certificate again, without asking any router: it reads the log, and the table of owners
// where the log was purged. It looks whether the cut is in the log, whether the pinned buckets are disjoint and the
// whole wanted set, whether each was pinned by its owner at the cut under that generation, and whether the figures
// add up.
func (c *Client) CheckCertificate(ctx context.Context, cert api.Certificate) (CertificateCheck, error) {
	var check CertificateCheck
	if err := cert.Readable(); err != nil {
		return check, err
	}
	settings, err := c.Settings(ctx)
	if err != nil {
		return check, err
	}
	if cert.Cluster != settings.ID {
		return check, api.Errorf(api.CodeClusterDiffer, "the certificate of job %.80q is of another cluster", cert.Job).
			WithHint("name that one: --server, --cluster")
	}
	log, err := c.conn.openLog(ctx)
	if err != nil {
		return check, err
	}
	if check.Cut, err = cutState(ctx, log, cert); err != nil {
		return check, err
	}
	if check.Cut == CutDiffers {
		return check, nil // there is no position to compare with
	}
	owners, at, err := c.ownersSince(ctx, log, settings.Buckets, cert.Cut)
	if err != nil {
		return check, err
	}
	check.Table, check.CertificateCheck = at, pmr.CheckCertificate(cert, owners)
	return check, nil
}

// cutState looks for a certificate's cut.
func cutState(ctx context.Context, log clusterLog, cert api.Certificate) (CutState, error) {
	entry, err := log.Entry(ctx, cert.Cut)
	if api.CodeOf(err) == api.CodeNotFound {
		state, err := log.State(ctx)
		if err == nil && cert.Cut > 0 && cert.Cut < state.First {
			return CutPurged, nil
		}
		return CutDiffers, err
	}
	if err != nil {
		return "", err
	}
	decoded, err := buckets.Decode(entry, cert.Buckets)
	if err == nil && decoded == (buckets.Cut{Job: cert.Job, Attempt: cert.Attempt}) {
		return CutFound, nil
	}
	return CutDiffers, nil
}

// errPurged says that the log was purged while it was read.
var errPurged = errors.New("pinion: the log was purged meanwhile")

// ownersSince returns the table of owners at a position of the log, or the first later one that is left of it.
func (c *Client) ownersSince(ctx context.Context, log clusterLog, n int, cut uint64) (*buckets.View, uint64, error) {
	state, err := c.conn.openState(ctx)
	if err != nil {
		return nil, 0, err
	}
	for range 3 {
		table, err := loadTable(ctx, state, log, n, cut)
		if err == nil {
			err = replay(ctx, log, table, n, cut)
		}
		if err == nil {
			return table.View(), table.Seq(), nil
		}
		if !errors.Is(err, errPurged) {
			return nil, 0, err
		}
	}
	return nil, 0, api.Errorf(api.CodeBusy, "the log was purged while it was read, three times").WithHint("try again")
}

// loadTable returns the saved table, or the empty one if the log holds all that there ever was.
func loadTable(ctx context.Context, state keys, log clusterLog, n int, cut uint64) (*buckets.Table, error) {
	saved, err := state.Get(ctx, tableKey)
	if err != nil {
		return nil, err
	}
	if saved.Revision == 0 {
		return buckets.NewTable(n), nil
	}
	table, err := buckets.ParseTable(saved.Value, n)
	if err != nil || table.Seq() <= cut {
		return table, err
	}
	extent, err := log.State(ctx)
	if err == nil && extent.First <= 1 {
		table = buckets.NewTable(n) // saved, and nothing purged yet
	}
	return table, err
}

// replay brings a table to a position, unless it is beyond. No entry of the log can be missing between.
func replay(ctx context.Context, log clusterLog, table *buckets.Table, n int, cut uint64) error {
	began := table.Seq()
	err := log.ReadTo(ctx, began+1, cut, buckets.TableSubjects(), func(e api.LogEntry) error {
		entry, err := buckets.Decode(e, n)
		if err != nil { // every applier passes over what is malformed
			table.Seen(e.Seq)
			return nil //nolint:nilerr // passed over
		}
		_, err = table.Apply(e.Seq, entry)
		if errors.Is(err, buckets.ErrGap) {
			err = nil // what seems to prove a gap is forged if there is none, which is looked at below
		}
		return err
	})
	if err != nil {
		return err
	}
	extent, err := log.State(ctx)
	if err == nil && extent.First > began+1 {
		err = errPurged
	}
	return err
}
