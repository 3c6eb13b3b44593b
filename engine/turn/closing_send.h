/* closing_send.h -- when a family has a message about its windows to send (closing.h). Called by the turn. */
#ifndef TWI_TURN_CLOSING_SEND_H
#define TWI_TURN_CLOSING_SEND_H

struct tw_family;

/* Call it when something of the family has changed. It computes when the family's next message is due. */
void twi_closing_appoint(struct tw_family *family);

#endif
