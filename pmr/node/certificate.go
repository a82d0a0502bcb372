package node

import (
	"context"
	"slices"

	"github.com/pinion-mr/pinion/api"
	"github.com/pinion-mr/pinion/pmr"
)

// checkCounts refuses the end of a map whose figures of the buckets are not those of the whole, or not of the
// buckets that were pinned.
func checkCounts(end api.MapEnd, pinned int) *api.Error {
	var records, pairs uint64
	for _, n := range end.BucketRecords {
		records += n
	}
	for _, n := range end.BucketPairs {
		pairs += n
	}
	switch {
	case len(end.BucketRecords) != pinned || len(end.BucketPairs) != pinned:
		return api.Errorf(api.CodeCoverage, "storage %s tells the records of %d buckets and the pairs of %d; it has pinned %d",
			end.Storage, len(end.BucketRecords), len(end.BucketPairs), pinned)
	case records != end.Records || pairs != end.Pairs:
		return api.Errorf(api.CodeCoverage, "storage %s tells of %d records and %d pairs; its buckets have %d and %d together",
			end.Storage, end.Records, end.Pairs, records, pairs)
	}
	return nil
}

// digestRows is the digest of a result.
func digestRows(ctx context.Context, rows resultRows) (string, error) {
	digest := pmr.NewRowDigest()
	for i := range rows.Len() {
		if i%1024 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		digest.Add(rows.Row(i))
	}
	return digest.Sum(), nil
}

// certify makes the certificate of a job that is done, as it is sent; mu is held.
func (j *job) certify(proof *pmr.Proof) []byte {
	c := api.Certificate{
		Version: api.CertificateVersion, Cluster: j.r.cfg.Settings.ID, Job: j.id, Attempt: proof.Attempt, Cut: proof.Cut,
		Buckets: j.r.cfg.Settings.Buckets, Module: j.module.Digest, Params: pmr.ParamsDigest(j.req),
		Records: j.stats.Records, Pairs: j.stats.Pairs, Skips: j.stats.Skips, Rows: j.stats.Rows, Output: j.output,
	}
	for _, b := range wanted(j.req, c.Buckets) {
		c.Wanted = append(c.Wanted, uint16(b))
	}
	for _, p := range proof.Pinned {
		s := api.CertifiedStorage{Storage: p.Storage, Incarnation: p.Incarnation, PMR: p.PMR}
		end := j.maps[p.PMR].end
		for i, pin := range p.Buckets {
			s.Buckets = append(s.Buckets, api.BucketCount{
				Bucket: pin.Bucket, Generation: pin.Generation, Records: end.BucketRecords[i], Pairs: end.BucketPairs[i],
			})
		}
		c.Storages = append(c.Storages, s)
	}
	body, err := api.Encode(api.Msgpack, c)
	if err != nil { // a message of this package's own making
		j.log("cannot write a certificate", "reason", err)
	}
	return body
}

// Certificate returns the certificate of a job that is done, from whichever router keeps it. BUSY says that the
// job has not ended, UNKNOWN_JOB that nobody knows it any more; a job that failed has none and answers why it
// failed.
func (r *Router) Certificate(ctx context.Context, req api.CertificateRequest) (api.Certificate, error) {
	if j := r.job(req.Job); j != nil && !j.durable {
		return r.OwnCertificate(ctx, req)
	}
	if rec, revision, err := r.record(ctx, req.Job); err != nil {
		return api.Certificate{}, err
	} else if revision != 0 && rec.Durable {
		return r.storedCertificate(ctx, rec)
	}
	var c api.Certificate
	return c, r.elsewhere(ctx, req.Job, "certificate", 0, req, &c)
}

// OwnCertificate is Certificate for the jobs of this router.
func (r *Router) OwnCertificate(_ context.Context, req api.CertificateRequest) (api.Certificate, error) {
	var c api.Certificate
	j := r.job(req.Job)
	switch {
	case j == nil:
		return c, r.unknownJob(req.Job)
	case !j.over():
		return c, api.Errorf(api.CodeBusy, "job %s has not ended", req.Job).WithHint("its certificate is made when it is done")
	}
	j.mu.Lock()
	failed, kept := j.err, slices.Clone(j.certificate)
	j.mu.Unlock()
	if failed != nil {
		return c, failed.With("job", j.id)
	}
	err := api.Decode(kept, &c, api.Strict)
	return c, err
}
