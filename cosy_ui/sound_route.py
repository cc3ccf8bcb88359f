"""`GET pcm/<job id>`: raw little-endian int16 of a running job, so that the page can play the first sound at once.

The id is unguessable, made by an event of the page (behind its login, if there is one) and works once.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse

from cosy_ui.jobs import JobTable
from cosy_ui.login import guarded


def add_sound_route(app: FastAPI, jobs: JobTable) -> None:
    async def pcm(job_id: str):
        job = jobs.take(job_id)
        if job is None:
            return JSONResponse({"error": "this sound has been fetched already, or its time is over"}, status_code=404)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Rate-Hz": str(job.rate_hz)}
        headers["X-Lead-S"] = f"{jobs.lead_s:.2f}"
        return StreamingResponse(job.pcm(), media_type="audio/L16", headers=headers)

    guarded(app, jobs.guests, "/pcm/{job_id}", pcm)
